"""Passwords apart from their names: in links, in fences, on the next line, below a heading."""

import random

import pytest

from classifiers.pii.detect import find
from tests.classifiers import samples


RANDOM = random.Random(51)
PASSWORD = f"Tr0ub{samples.digits(RANDOM, 2)}dor&{samples.digits(RANDOM, 1)}"
TOLD = (
    "[Password: {}](https://wiki.internal)", "[the password is {}](#login)", "[password]({})",
    "password: [{}](https://wiki.internal)", "password:\n```\n{}\n```", "Password\n\n```\n{}\n```",
    "Here is the password for staging:\n```text\n{}\n```\nLog in.",
    "> Passwort:\n> ```\n> {}\n> ```", "Contraseña:\n~~~\n{}\n~~~", "**Password**\n\n`{}`",
    "### Password\n\n{}\n", "- Password\n  - {}", "Passwort:\n> {}",
    "The password is:\n\n    {}\n", "mot de passe :\n{}", "# password\n{}",
    "パスワード:\n```\n{}\n```", "密码：\n```text\n{}\n```", "пароль:\n```\n{}\n```",
    "| password |\n|---|\n| {} |", "<table><tr><th>password</th></tr><tr><td>{}</td></tr></table>",
    "<tr><td>Password</td><td>{}</td></tr>", "user;password\nbob;{}",
)  # fmt: skip
NONE = (
    "[Password policy](docs/password2.md)", "[password](https://example.org/a1b2c3d4)",
    "[Password](#reset-2fa)", "Change your password:\n```\nnpm run reset2\n```",
    "password:\n```python\nimport os\nfoo1=2\n```", "Password\n\nForgot it?",
    "Reset password\nStep 2", "Passwort vergessen\n\nSchritt2", "Password\n-------\n",
    "# Password hashing\n\nargon2id", "Password length\n12-64",
    "password:\n```\npasswords.txt\n```", "The password is read from:\n```\n/run/secrets/db2\n```",
    "password:\n```\n${DB_PASSWORD2}\n```", "password:\n```\n--read-stdin2\n```",
    "- password\n- username2", "[password](./reset2.html)",
)  # fmt: skip


@pytest.mark.parametrize("form", TOLD)
def test_a_password_apart_from_its_name_is_found(form: str) -> None:
    text = form.format(PASSWORD)
    start = text.index(PASSWORD)
    assert [(f.label, f.start, f.end) for f in find(text)] == [
        ("PASSWORD", start, start + len(PASSWORD))
    ]


@pytest.mark.parametrize("text", NONE)
def test_what_else_stands_there_is_none(text: str) -> None:
    assert not find(text)
