"""Reviews in the browser and as JSON: what is due, one span to look at, and its sign-off."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from litestar import MediaType, Response, get, post, route
from litestar.params import FromPath
from litestar.response import Redirect

from admin.access import needs, session_of
from admin.asking import Asking
from admin.bodies import body_of
from admin.compliance.office import Office
from admin.compliance.reviewing import (
    ReviewDetail,
    ReviewLine,
    ReviewOrder,
    ReviewRoom,
    SignOrder,
)
from admin.forms import Form, form_of
from admin.long_lists import list_of
from admin.queries import after_of, first_of
from admin.services import Services
from admin.sign_in.pages import READING, SEE_OTHER
from gateway.errors import ChangedMeanwhile, RequestInvalid
from gateway.oversight.access import Permission
from gateway.oversight.searching import Filter, Term, parse, render
from gateway.store.custody.reviews import DAYS_MAX, Review, Signature


AT: Final = "/o/{organisation:str}/compliance/reviews"
ONE: Final = AT + "/{review:str}"
API: Final = "/api/organisations/{organisation:str}/compliance/reviews"
NO_CONTENT: Final = 204
TIME_MAX: Final = 2**62
MEANWHILE: Final = (
    "Somebody else signed this period, or ended the review, meanwhile. Nothing was done."
)
_P = Permission
_HTML: Final = MediaType.HTML
_READS: Final = needs(_P.AUDIT_READ)
_SIGNS: Final = needs(_P.REVIEWS_SIGN)


def review_routes(services: Services, _: Office) -> list[Any]:
    """Pages and the JSON behind them."""
    room = ReviewRoom(services)
    return [*_reading(services, room), *_making(services, room), *_signing(services, room)]


def review_api_routes(services: Services, _: Office) -> list[Any]:
    """The same as JSON."""
    room = ReviewRoom(services)

    @get(API, opt=_READS)
    async def list_reviews(
        request: Asking, organisation: FromPath[str]
    ) -> Response[Sequence[ReviewLine]]:
        whole = partial(room.lines, organisation)
        return await list_of(request, whole, partial(room.page, organisation))

    @get(API + "/{review:str}", opt=_READS)
    async def show_review(organisation: FromPath[str], review: FromPath[str]) -> ReviewDetail:
        return await room.detail(organisation, review)

    @post(API, opt=needs(_P.REVIEWS_SIGN, records="review.made"))
    async def make_review(request: Asking, organisation: FromPath[str]) -> Review:
        order = await body_of(request, ReviewOrder)
        return await room.make(session_of(request).person, organisation, order)

    @post(API + "/{review:str}/sign", opt=needs(_P.REVIEWS_SIGN, records="review.signed"))
    async def sign_review(
        request: Asking, organisation: FromPath[str], review: FromPath[str]
    ) -> Signature:
        found = await room.review(organisation, review)
        order = await body_of(request, SignOrder)
        return await room.sign(session_of(request).person, found, order)

    @post(
        API + "/{review:str}/end",
        opt=needs(_P.REVIEWS_SIGN, records="review.ended"),
        status_code=NO_CONTENT,
    )
    async def end_review(
        request: Asking, organisation: FromPath[str], review: FromPath[str]
    ) -> None:
        found = await room.review(organisation, review)
        await room.end(session_of(request).person, found)

    return [list_reviews, show_review, make_review, sign_review, end_review]


async def _page(
    services: Services,
    room: ReviewRoom,
    request: Asking,
    place: tuple[str, str],
    *,
    wrong: str = "",
    comment: str = "",
    status: int = 200,
) -> Response[str]:
    detail = await room.detail(*place)
    keys = {row.key_id for row in detail.sample}
    return await services.shell.page(
        request,
        "compliance/review.html",
        "reviews",
        status,
        detail=detail,
        names=await services.key_names.names(place[0], keys),
        line=detail.line,
        review=detail.line.review,
        wrong=wrong,
        comment=comment,
        listing=listing_of(detail.line.review, detail.since_us, detail.until_us),
        listing_of=listing_of,
    )


def _reading(services: Services, room: ReviewRoom) -> list[Any]:
    @route(AT, http_method=READING, media_type=_HTML, opt=_READS)
    async def reviews_page(request: Asking, organisation: FromPath[str]) -> Response[str]:
        return await services.shell.page(
            request,
            "compliance/reviews.html",
            "reviews",
            lines=await room.page(organisation, first_of(request), after=after_of(request)),
            due=await room.due(organisation),
        )

    @route(ONE, http_method=READING, media_type=_HTML, opt=_READS)
    async def review_page(
        request: Asking, organisation: FromPath[str], review: FromPath[str]
    ) -> Response[str]:
        return await _page(services, room, request, (organisation, review))

    return [reviews_page, review_page]


def _making(services: Services, room: ReviewRoom) -> list[Any]:
    async def form_page(
        request: Asking, organisation: str, form: Form, wrong: dict[str, str] | None = None
    ) -> Response[str]:
        return await services.shell.page(
            request,
            "compliance/review_new.html",
            "reviews",
            400 if wrong else 200,
            form=form,
            wrong=wrong or {},
            people=await room.able(organisation),
        )

    # A review's id is drawn in hexadecimal digits, so none is ever called so.
    @route(AT + "/new", http_method=READING, media_type=_HTML, opt=_SIGNS)
    async def new_review(request: Asking, organisation: FromPath[str]) -> Response[str]:
        given = {name: [value] for name, value in request.query_params.items()}
        return await form_page(request, organisation, Form(given))

    @post(
        AT + "/new",
        media_type=_HTML,
        opt=needs(_P.REVIEWS_SIGN, records="review.made"),
        status_code=SEE_OTHER,
    )
    async def make(request: Asking, organisation: FromPath[str]) -> Response[Any]:
        async def made() -> Response[Any]:
            form = await form_of(request)
            try:
                order = ReviewOrder(
                    name=form.text("name"),
                    filter=form.text("q"),
                    room=form.text("room", "audit"),
                    every_days=form.whole("every_days", DAYS_MAX) or 0,
                    responsible=form.text("responsible"),
                )
                made = await room.make(session_of(request).person, organisation, order)
            except RequestInvalid as error:
                return await form_page(
                    request, organisation, form, {error.parameter or "name": error.message}
                )
            return Redirect(
                f"/o/{organisation}/compliance/reviews/{made.id}", status_code=SEE_OTHER
            )

        return await services.shown_once.answer(request, await form_of(request), made)

    return [new_review, make]


def _signing(services: Services, room: ReviewRoom) -> list[Any]:
    @post(
        ONE + "/sign",
        media_type=_HTML,
        opt=needs(_P.REVIEWS_SIGN, records="review.signed"),
        status_code=SEE_OTHER,
    )
    async def sign(
        request: Asking, organisation: FromPath[str], review: FromPath[str]
    ) -> Response[Any]:
        form, found = await form_of(request), await room.review(organisation, review)
        comment, place = form.text("comment"), (organisation, review)
        try:
            since_us = form.whole("since_us", TIME_MAX) or 0
            until_us = form.whole("until_us", TIME_MAX) or 0
            order = SignOrder(since_us, until_us, comment)
            await room.sign(session_of(request).person, found, order)
        except RequestInvalid as error:
            wrong = MEANWHILE if isinstance(error, ChangedMeanwhile) else error.message
            said = {"wrong": wrong, "comment": comment}
            return await _page(services, room, request, place, **said, status=error.status)
        return Redirect(f"/o/{organisation}/compliance/reviews/{review}", status_code=SEE_OTHER)

    @post(
        ONE + "/end",
        opt=needs(_P.REVIEWS_SIGN, records="review.ended"),
        status_code=SEE_OTHER,
    )
    async def end(request: Asking, organisation: FromPath[str], review: FromPath[str]) -> Redirect:
        found = await room.review(organisation, review)
        await room.end(session_of(request).person, found)
        return Redirect(f"/o/{organisation}/compliance/reviews/{review}", status_code=SEE_OTHER)

    return [sign, end]


def listing_of(review: Review, since_us: int, until_us: int) -> str:
    """The filter that finds a span's records in their list; the list knows whole seconds."""
    times = (Term("since", (_moment(since_us),)), Term("until", (_moment(until_us, up=True),)))
    return render(Filter((*parse(review.filter).terms, *times)))


def _moment(utc_us: int, *, up: bool = False) -> str:
    seconds = -(-utc_us // 1_000_000) if up else utc_us // 1_000_000
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
