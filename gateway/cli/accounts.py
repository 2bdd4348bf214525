"""Accounts of the tree as people type them, and the largest limit of one."""

import re
from typing import Final

import click

from gateway.cli.options import NAME


LIMIT_MICROUSD_MAX: Final = 10**15
_ACCOUNT = re.compile(
    rf"org:{NAME}|ws:{NAME}/{NAME}|proj:{NAME}/{NAME}/{NAME}|key:[0-9A-Za-z]{{12}}|user:{NAME}/\*"
)


class _Account(click.ParamType[str]):
    """Checks the form of an account, since a misspelt one would limit nobody."""

    name = "account"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if _ACCOUNT.fullmatch(value) is None:
            forms = "org:NAME, ws:ORG/NAME, proj:ORG/WS/NAME, key:ID or user:ORG/*"
            self.fail(f"{value!r} is no account; use {forms}", param, ctx)
        return value


ACCOUNT = _Account()
