// Draws each figure.chart from the table inside it. The first column holds times (data-x, seconds
// since 1970), each other column is a series (data-y); the table stays for who cannot see a drawing.
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const PALETTE = ["--accent", "--in-house", "--managed", "--refused", "--warn"];

function seriesOf(table) {
  const heads = [...table.tHead.rows[0].cells].slice(1);
  const body = [...table.tBodies[0].rows];
  const column = (number, name) => body.map((row) => {
    const value = row.cells[number]?.dataset[name];
    return value === undefined || value === "" ? null : Number(value);
  });
  return {
    data: [column(0, "x"), ...heads.map((_, index) => column(index + 1, "y"))],
    series: heads.map((head, index) => ({
      label: head.textContent.trim(),
      stroke: style(head.dataset.color ?? PALETTE[index % PALETTE.length]),
      width: 1.5,
      dash: head.dataset.dash ? [4, 4] : undefined,
      points: { show: body.length < 2 },
    })),
  };
}

function draw(figure) {
  const table = figure.querySelector("table");
  const plot = figure.querySelector(".plot");
  if (!table?.tBodies[0]?.rows.length || plot.hasChildNodes()) return;
  const { data, series } = seriesOf(table);
  const axis = { stroke: style("--ink-soft"), grid: { stroke: style("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
  const chart = new uPlot(
    { width: plot.clientWidth || 600, height: 180, series: [{}, ...series], axes: [axis, { ...axis, size: 64 }], legend: { live: false } },
    data,
    plot,
  );
  new ResizeObserver(() => chart.setSize({ width: plot.clientWidth, height: 180 })).observe(plot);
}

const drawAll = () => document.querySelectorAll("figure[data-chart]").forEach(draw);
drawAll();
document.addEventListener("htmx:after:swap", drawAll);
