// Draws each figure.chart from the table inside it. The first column holds times (data-x, seconds
// since 1970), each other column is a series (data-y); the table stays for who cannot see a drawing.
// A table with data-bars, the seconds that each row lasts, is drawn as bars over that time, two series
// side by side; one with data-brush leads on to the span that is drawn on.
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const PALETTE = ["--accent", "--in-house", "--managed", "--refused", "--warn"];

// A bar stands around the middle of its row's time, so that a span drawn around it is that time.
function barsOf(table, index, count, color) {
  if (!("bars" in table.dataset)) return {};
  const beside = count === 2 ? { size: [0.4, 24], align: index === 0 ? -1 : 1 } : { size: [0.8, 40] };
  return { paths: uPlot.paths.bars(beside), fill: color, width: 0 };
}

function seriesOf(table) {
  const lasts = Number(table.dataset.bars ?? 0);
  const heads = [...table.tHead.rows[0].cells].slice(1).filter((head) => head.classList.contains("number"));
  const body = [...table.tBodies[0].rows];
  const column = (number, name) => body.map((row) => {
    const value = row.cells[number]?.dataset[name];
    return value === undefined || value === "" ? null : Number(value);
  });
  const color = (head, index) => style(head.dataset.color ?? PALETTE[index % PALETTE.length]);
  return {
    data: [column(0, "x").map((from) => from + lasts / 2), ...heads.map((_, index) => column(index + 1, "y"))],
    series: heads.map((head, index) => ({
      label: head.textContent.trim(),
      stroke: color(head, index),
      width: 1.5,
      dash: head.dataset.dash ? [4, 4] : undefined,
      points: { show: body.length < 2 && !("bars" in table.dataset) },
      ...barsOf(table, index, heads.length, color(head, index)),
    })),
  };
}

// Where a span of time on the chart leads: the same list within it.
function brush(href) {
  return (chart) => {
    if (chart.select.width < 6) return;
    const at = (left) => new Date(chart.posToVal(left, "x") * 1000).toISOString().slice(0, 19) + "Z";
    const there = new URL(href, location.href);
    there.searchParams.set("since", at(chart.select.left));
    there.searchParams.set("until", at(chart.select.left + chart.select.width));
    location.assign(there);
  };
}

// What happened in a row that says so (data-mark) is a line across the chart; the table has its words.
function marks(table) {
  const at = [...table.tBodies[0].rows].filter((row) => row.dataset.mark).map((row) => Number(row.cells[0].dataset.x));
  return (chart) => {
    chart.ctx.save();
    chart.ctx.strokeStyle = style("--warn");
    chart.ctx.setLineDash([3, 3]);
    for (const x of at) {
      const left = chart.valToPos(x, "x", true);
      chart.ctx.beginPath();
      chart.ctx.moveTo(left, chart.bbox.top);
      chart.ctx.lineTo(left, chart.bbox.top + chart.bbox.height);
      chart.ctx.stroke();
    }
    chart.ctx.restore();
  };
}

// From the first row's beginning to the last one's end; of one row uPlot would make years. A bar is
// as high as what it counts, so it stands on nothing and not on the least of them.
const whole = (middles, lasts) => ({
  x: { range: () => [middles[0] - lasts / 2, middles.at(-1) + lasts / 2] },
  y: { range: (chart, least, most) => uPlot.rangeNum(0, most || 1, 0.1, true) },
});

// The words of an axis: as many digits as its steps have, however small they are, and the unit. Of
// what is counted there is no half.
function wordsOf(unit) {
  return (chart, splits, axis, space, step) => {
    const digits = Math.min(20, Math.max(0, Math.ceil(1 - Math.log10(step))));
    const form = new Intl.NumberFormat(undefined, { maximumFractionDigits: digits });
    if (["requests", "records"].includes(unit)) return splits.map((value) => (Number.isInteger(value) ? form.format(value) : ""));
    return splits.map((value) => `${unit === "$" ? unit : ""}${form.format(value)}${unit === "%" ? unit : ""}`);
  };
}

// The words of the time axis, in the page's language and zone: the hour, and the date where it
// changes. Month and day are never two numbers, of which nobody knows which is which.
function timesOf(zone) {
  const language = document.body.dataset.locale || undefined;
  const form = (options) => new Intl.DateTimeFormat(language, { timeZone: zone, ...options });
  const hour = form({ hour: "numeric", minute: "2-digit" });
  const second = form({ hour: "numeric", minute: "2-digit", second: "2-digit" });
  const [day, year] = [form({ month: "short", day: "numeric" }), form({ year: "numeric" })];
  return (chart, splits, axis, space, step) => {
    let [lastDay, lastYear] = ["", ""];
    return splits.map((seconds) => {
      if (!Number.isInteger(seconds)) return ""; // Between two seconds: it would say the first one again.
      const at = new Date(seconds * 1000);
      const [theDay, theYear] = [day.format(at), year.format(at)];
      const isNewYear = theYear !== lastYear;
      const lines = step < 86400 ? [(step < 60 ? second : hour).format(at), ...(theDay === lastDay ? [] : [theDay])] : [theDay, ...(isNewYear ? [theYear] : [])];
      [lastDay, lastYear] = [theDay, theYear];
      return lines.join("\n");
    });
  };
}

const ROOM_MIN = 64;
const LAST_WORDS = 36; // Half of the longest time, which stands around the end of the axis.
const roomFor = (chart, words) => Math.max(ROOM_MIN, 16 + 7 * Math.max(...(words ?? [""]).map((word) => word.length)));

function draw(figure) {
  const table = figure.querySelector("table");
  const plot = figure.querySelector(".plot");
  if (!table?.tBodies[0]?.rows.length || plot.hasChildNodes()) return;
  const { data, series } = seriesOf(table);
  const axis = { stroke: style("--ink-soft"), grid: { stroke: style("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
  const href = table.dataset.brush;
  const more = { ...(href && { cursor: { drag: { x: true, setScale: false } } }), ...("bars" in table.dataset && { scales: whole(data[0], Number(table.dataset.bars)) }) };
  const hooks = { draw: [marks(table)], ...(href && { setSelect: [brush(href)] }) };
  // In the zone of all other times of the page, which may not be the browser's.
  const zone = document.body.dataset.zone;
  const chart = new uPlot(
    { ...more, hooks, tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), zone), width: figure.clientWidth || 600, height: 180, padding: [null, LAST_WORDS, null, null], series: [{}, ...series], axes: [{ ...axis, values: timesOf(zone), space: 72 }, { ...axis, values: wordsOf(figure.dataset.unit), size: roomFor }], legend: { live: false } },
    data,
    plot,
  );
  new ResizeObserver(() => chart.setSize({ width: figure.clientWidth, height: 180 })).observe(figure);
}

const drawAll = () => document.querySelectorAll("figure[data-chart]").forEach(draw);
drawAll();
document.addEventListener("htmx:after:swap", drawAll);
