"""What a screen reader is told: the check of every page finds what it is there to find, and what no
link leads to, and forms that were refused, stand it too.
"""

import pytest

from gateway.store.identity.sessions import IDLE_S
from tests.admin import seeding
from tests.admin.chromium import Window, window
from tests.admin.compliance.archive import converse
from tests.admin.listener import Listener
from tests.admin.policies.people import APPROVER, PASSWORD, WRITER, signed_in, staff
from tests.admin.policies.test_rolling_out import STRICT, stepped, submitted
from tests.admin.policies.test_writing import HOME, TEXT, saved
from tests.admin.spoken import unspoken


pytestmark = pytest.mark.anyio
PAGE = "<main><h1>A page</h1>{}</main>"
WRONG = {
    "<button></button>": "without a name: 1 × button",
    '<a href="/x"><svg aria-hidden="true"></svg></a>': "without a name: 1 × link",
    "<input>": "without a name: 1 × textbox",
    "<select><option>one</option></select>": "without a name: 1 × combobox",
    '<svg role="img"><rect/></svg>': "without a name: 1 × image",
    '<p id="a"></p><p id="a"></p>': "id twice: a",
    '<label for="b">Name</label>': "labels nothing",
    '<p aria-describedby="c">x</p>': "aria-describedby leads nowhere",
    '<a href="#d">There</a>': "link within the page leads nowhere",
    '<input aria-label="Share" aria-invalid="true">': "wrong without a reason",
    '<span class="wrong" id="e">no number</span>': "a reason that belongs to no field",
    "<table><tr><th>Head</th></tr></table>": "a table of what",
    '<table aria-label="T"><tr><td>1</td></tr></table>': "a table without heads",
    '<table aria-label="T"><thead><tr><th></th></tr></thead></table>': "a head that says nothing",
    '<div tabindex="0">scrolls</div>': "focus without a role",
    '<nav aria-label="N">a</nav><nav aria-label="N">b</nav>': "2 landmarks of one name",
    "<main>another</main>": "not one main landmark",
}


async def test_what_is_kept_from_a_screen_reader_is_found(listener: Listener) -> None:
    async with window(listener) as seen:
        await seen.page.set_content(PAGE.format("<p>Nothing is wrong.</p>"))
        assert await unspoken(seen.page) == []
        for markup, said in WRONG.items():
            await seen.page.set_content(PAGE.format(markup))
            found = await unspoken(seen.page)
            assert any(each.startswith(said) for each in found), (markup, found)
        await seen.page.set_content("<main><h2>A page</h2></main>")
        assert await unspoken(seen.page) == ["no heading of the first level"]


async def spoken(seen: Window, where: str) -> None:
    assert await unspoken(seen.page) == [], where
    assert await seen.violations() == [], where


async def test_what_somebody_meets_on_the_way_in_is_said_too(listener: Listener) -> None:
    (wanted,) = await converse(listener, ["ann"])
    await seeding.person(listener, "cora", "compliance")
    async with window(listener) as seen:
        await seen.open("/sign-in")
        await spoken(seen, "sign-in")
        await seen.sign_in("cora", "not the one it is")
        await spoken(seen, "a sign-in that was refused")
        await seen.sign_in("cora", seeding.PASSWORD)
        await seen.open("/nowhere")
        await spoken(seen, "no such page")
        await seen.open(f"/o/acme/compliance/reveals/new?request={wanted}")
        await seen.page.fill("#field-reason", "to see")
        await seen.page.fill("[name=ticket]", "T-1")
        listener.clock.advance(IDLE_S + 1)
        await seen.page.click("button:has-text('Send the request')")
        await seen.page.wait_for_selector("#password")
        await spoken(seen, "a session that ended")
        await seen.sign_in_here("cora", seeding.PASSWORD)
        await seen.page.wait_for_selector("text=Send it now")
        await spoken(seen, "going on")


@pytest.mark.parametrize("field", ["name", "expires_days", "labels"])
async def test_a_field_that_was_refused_says_why(listener: Listener, field: str) -> None:
    await seeding.person(listener, "ann", "app_owner")
    await seeding.issue(listener, "assistant")
    async with window(listener) as seen:
        await seen.sign_in("ann", seeding.PASSWORD)
        await seen.open("/o/acme/keys/new")
        for name, value in (("name", "payroll"), ("workspace", "people"), ("project", "payroll")):
            await seen.page.fill(f"#field-{name}", value)
        await seen.page.evaluate("document.querySelector('main form').noValidate = true")
        wrong = "\N{RIGHT-TO-LEFT OVERRIDE}"
        await seen.page.evaluate(f"document.getElementsByName('{field}')[0].type = 'text'")
        await seen.page.fill(f"[name={field}]", wrong)
        await seen.page.press(f"[name={field}]", "Enter")
        await seen.page.wait_for_selector("[aria-invalid=true]")
        assert await seen.page.evaluate("document.activeElement.name") == field
        await spoken(seen, field)


async def test_a_model_that_there_is_no_more_says_so_at_the_models(listener: Listener) -> None:
    await seeding.person(listener, "root", "platform_admin")
    key = await seeding.issue(listener, "assistant")
    async with window(listener) as seen:
        await seen.sign_in("root", seeding.PASSWORD)
        for path, sends in (("new", "Issue the key"), (f"{key}/change", "Preview")):
            await seen.open(f"/o/acme/keys/{path}")
            if path == "new":
                for name, value in (("name", "bot"), ("workspace", "lab"), ("project", "bot")):
                    await seen.page.fill(f"#field-{name}", value)
            await seen.page.eval_on_selector("[name=models]", "each => { each.value = 'gone'; }")
            await seen.page.check("[name=models] >> nth=0")
            await seen.page.click(f"button:has-text('{sends}')")
            await seen.page.wait_for_selector("[aria-invalid=true]")
            assert await seen.page.evaluate("document.activeElement.name") == "models"
            await spoken(seen, path)


async def test_two_texts_of_one_policy_and_what_stands_beside_a_list_are_said(
    listener: Listener,
) -> None:
    await staff(listener)
    key = await seeding.issue(listener, "assistant")
    await listener.record(*seeding.requests(listener, key, 3))
    async with window(listener) as seen:
        await seen.sign_in(WRITER, PASSWORD)
        await seen.open(f"{HOME}/edit?as=code")
        async with signed_in(listener, WRITER) as wanda:
            await saved(wanda, TEXT)
        await seen.page.click("text=Save the draft")
        await seen.page.wait_for_selector("#mine")
        await spoken(seen, "two texts")
        await seen.page.context.clear_cookies()
        await seeding.person(listener, "root", "platform_admin")
        await seen.sign_in("root", seeding.PASSWORD)
        await seen.open("/o/acme/traffic")
        await seen.page.click("#rows tbody a")
        await seen.page.wait_for_selector("#peek h2")
        await spoken(seen, "the drawer")


async def test_a_refusal_belongs_to_the_field_that_it_is_about(listener: Listener) -> None:
    await staff(listener)
    key = await seeding.issue(listener, "assistant")
    await seeding.person(listener, "root", "platform_admin")
    await seeding.person(listener, "cora", "compliance")
    async with signed_in(listener, WRITER) as wanda, signed_in(listener, APPROVER) as anton:
        version = await submitted(wanda, STRICT)
        await stepped(anton, version, "approve")
    limits = f"/o/acme/costs/limits/change?account=key:{key}&limit_microusd=12,50"
    async with window(listener) as seen:
        await seen.sign_in("root", seeding.PASSWORD)
        await seen.open(limits)
        await belongs(seen, "limit_microusd")
        await seen.page.context.clear_cookies()
        await seen.sign_in(APPROVER, PASSWORD)
        await seen.open(version)
        await seen.page.check("#rollout [value=canary]")
        await send_wrong(seen, "percent", "101")
        await belongs(seen, "percent")
        assert await seen.page.is_checked("#rollout [value=canary]")
        await seen.page.fill("#field-percent", "5")
        await send_wrong(seen, "at", "tomorrow")
        await belongs(seen, "at")
        await seen.page.context.clear_cookies()
        await seen.sign_in("cora", seeding.PASSWORD)
        await seen.open("/o/acme/compliance/reveals/new")
        await seen.page.fill("#field-reason", "to see")
        await seen.page.fill("[name=ticket]", "T-1")
        await seen.page.fill("[name=minutes]", "5")
        await send_wrong(seen, "request_id", "nothing")
        await belongs(seen, "request_id")


async def send_wrong(seen: Window, name: str, text: str) -> None:
    """Send the form of a field with what the browser itself would not let through."""
    field = f"main [name={name}]"
    await seen.page.locator(field).evaluate("each => { each.type = 'text'; }")
    await seen.page.locator(field).evaluate("each => { each.form.noValidate = true; }")
    if name in ("percent", "at"):
        await seen.page.fill("#rollout [name=reason]", "why")
    await seen.page.fill(field, text)
    await seen.page.press(field, "Enter")
    await seen.page.wait_for_selector("main [role=alert]")


async def belongs(seen: Window, name: str) -> None:
    """The field is marked as wrong, says why, and has the focus."""
    marked = "[...document.querySelectorAll('[aria-invalid=true]')].map((each) => each.name)"
    assert await seen.page.evaluate(marked) == [name]
    assert await seen.page.evaluate("document.activeElement.name") == name
    await spoken(seen, name)
