"""Every name that an admin route takes something under, and what is sent for it.

What may be an id of one organisation is written with the kinds of `two_organisations` in braces.
"""

from typing import Any

from tests.admin.two_organisations import FOREIGN


PATH_IDS = {
    *("batch", "case", "drift", "file", "hold", "incident", "key_id", "level", "log", "number"),
    *("pack", "person", "proposal", "request_id", "reveal", "review", "sequence", "team"),
}
"""Parameters of paths that are the id of something of one organisation."""
PATH_OTHERS = {
    "kind": "prompts",
    "member": "house",
    "name": "managed",
    "provider": "managed",
    "retirement": "0" * 12,
    "sink": "lake",
    "worker": "w0",
}
"""Those that name nothing of an organisation: parts of the installation, and kinds of things."""
FIELDS_WITH_IDS = {
    "a": ("{number}",),
    "b": ("{number}",),
    "account": ("{account}", "{room}", "org:{organisation}"),
    "filter": ("key:{key_id}", "id:{request_id}"),
    "find": ("{key_id}", "{team}", "{request_id}", "{person}"),
    "key": ("{key_id}",),
    "key_id": ("{key_id}",),
    "level": ("{level}",),
    "of": ("{scope}",),
    "open": ("{account}", "{room}"),
    "owner": ("{person}",),
    "person": ("{person}",),
    "project": ("{project}",),
    "q": ("key:{key_id}", "id:{request_id}", "workspace:{workspace}"),
    "request": ("{request_id}",),
    "request_id": ("{request_id}",),
    "responsible": ("{person}",),
    "to": ("{number}",),
    "user": ("{person}",),
    "workspace": ("{workspace}",),
}
"""Fields of forms, bodies and queries that may carry the id of something."""
ID_BY_ROUTE = {
    "erasures": "{case}",
    "holds": "{hold}",
    "keys": "{proposal}",
    "policies": "{number}",
    "prices": "{number}",
    "reveals": "{reveal}",
    "workers": "0" * 12,
}
"""What the field `id` is, by the last part of its path."""
OTHER_FIELDS: dict[str, Any] = {
    "accepts_wider": False,
    "action": "reject",
    "again": "",
    "agreed": "",
    "at": "2027-01-16T09:00",
    "body": "",
    "budget_microusd": None,
    "budget_window": "month",
    "clock": "gdpr-72",
    "code": "",
    "comment": "a test",
    "conclusion": "a test",
    "concurrent_requests": None,
    "config": "",
    "currency": "USD",
    "deed": "",
    "ends_former": True,
    "every_days": 7,
    "expected_version": 0,
    "expects": "",
    "expires": "keep",
    "expires_days": None,
    "facts": {},
    "guard": {},
    "hardware": {},
    "in_use": 0,
    "is_named": "1",
    "kind": "prompts",
    "labels": [],
    "lang": "",
    "law": "gdpr",
    "limit_microusd": 5,
    "live": None,
    "load": {},
    "locale": "",
    "log": "requests",
    "looked": "",
    "member": "nothing",
    "minutes": 5,
    "model": {},
    "models": ["house"],
    "name": "new",
    "noticed_us": 0,
    "once": "",
    "organisation": FOREIGN,
    "overlap_s": 60,
    "password": "",
    "percent": 0.0,
    "place": 0,
    "policies": "on",
    "precision": "fp16",
    "provider": "managed",
    "reason": "a test",
    "recipient": "somebody",
    "reference": "T-1",
    "regimes": ["gdpr"],
    "reported": "",
    "reported_us": 0,
    "requests_per_minute": None,
    "revision": 0,
    "role": "viewer",
    "room": "audit",
    "secrets": None,
    "section": "preferences",
    "seen": 0,
    "since": "",
    "since_us": 0,
    "target": "house",
    "text": 'name = "typed"\nversion = 1\n',
    "theme": "",
    "ticket": "T-1",
    "title": "new",
    "token": "",
    "tokens_per_minute": None,
    "translation": "warn",
    "until": "",
    "until_us": 1,
    "value": "words",
    "version": 0,
    "was": None,
    "when": "true",
    "window": "month",
    "with_policies": True,
    "written": "",
    "zone": "UTC",
}
"""Fields that carry no id, and what is sent in them."""
QUERIES = {
    *("before", "by", "csrf", "days", "done", "file", "form", "from", "hours", "live", "only"),
    *("permission", "state", "view", "with", "worker"),
}
"""Parts of addresses that carry no id either."""
NO_FIELDS = {"found", "problem", "wrong"}
"""What only looks like a field in the code."""
