"""Words for passwords and keys in scripts other than Latin; the rules read ASCII.

Such a word is read as if it stood there in English. For Latin script `passwords` lists the words.
"""

# ruff: noqa: RUF001 - the words and marks of other scripts are what this is about.

import re
from collections.abc import Callable, Iterator
from typing import Final

import re2

from classifiers.pii.credentials.passwords import password_value
from classifiers.pii.credentials.secrets import keyed_secret
from classifiers.pii.gate import options
from classifiers.pii.views.decoded import Change


_PASSWORD: Final = """
    पासवर्ड कूटशब्द পাসওয়ার্ড கடவுச்சொல் పాస్‌వర్డ్ పాస్వర్డ్ પાસવર્ડ ਪਾਸਵਰਡ ಪಾಸ್‌ವರ್ಡ್ ಪಾಸ್ವರ್ಡ್ പാസ്‌വേഡ് പാസ്വേഡ്
    パスワード パスコード パスフレーズ 暗証番号 合言葉 密码 密碼 口令 비밀번호 패스워드 암호
    كلمة_المرور كلمة_مرور كلمة_السر كلمة_سر رمز_المرور رمز_عبور گذرواژه پسورد پاس_ورڈ
    סיסמה סיסמא ססמה
    парол пароль паролем пароля паролю лозинка гасло κωδικός κωδικό συνθηματικό รหัสผ่าน
    """.split()  # noqa: SIM905 - a list literal would fill a screen.
_SECRET: Final = """
    密钥 密鑰 秘钥 金鑰 令牌 トークン シークレット 秘密鍵 アクセスキー 토큰 비밀키 시크릿 인증키
    токен токена секрет секретный_ключ ключ مفتاح توكن टोकन कुंजी κλειδί אסימון โทเค็น
    """.split()  # noqa: SIM905 - as above.


def _forms(words: list[str]) -> Iterator[str]:
    """Words as written within a sentence, at its beginning, and in capitals."""
    for word in sorted(words, key=len, reverse=True):
        said = word.replace("_", " ")
        yield from dict.fromkeys((said, said.capitalize(), said.upper()))


_WORDS: Final = {
    "password": tuple(_forms(_PASSWORD)),
    "secret": tuple(_forms(_SECRET)),
}
_OCCURS = re2.compile(
    "|".join([word for words in _WORDS.values() for word in words]).encode(), options()
)
_IS: Final = r"(?:は|が|是|为|為|는|은|이|가|है|हैं|هي|هو|است|הוא|היא|είναι|คือ|ist|is|[—–→-])"
_OPENED: Final = r"(?:(?:```|~~~)\w{0,12}\s?\n\s{0,8})?[\"'`*「『“«\[]{0,3}"
_TOLD = (
    re.compile(rf"[\"'`*)\]）」]{{0,3}}\s?(?:{_IS}|[:：=＝])?\s{{0,3}}{_OPENED}"),
    re.compile(rf"[^\n:：=＝]{{1,24}}[:：=＝]\s{{0,3}}{_OPENED}"),
)
"""The text between a word and its value: hardly any, or whose it is and a colon."""
_CALLED: Final = {
    "password": (re.compile("|".join(_WORDS["password"])), password_value),
    "secret": (re.compile("|".join(_WORDS["secret"])), keyed_secret),
}
_VALUE = re.compile(r"[!#-&(-+\--:=?-_a-~]{6,64}")
_OTHER_VALUE = re.compile(r"[^\s\"'`,:=：＝;<>、。，；」』”»]{6,64}")
_NO_END: Final = ".!?:"


def is_called(text: str) -> bool:
    """Whether such a word occurs."""
    return _OCCURS.search(text.encode("utf-8", "surrogatepass")) is not None


def called(text: str) -> Iterator[Change]:
    """A word, and the text up to a likely value, replaced by the word in English."""
    found: list[Change] = []
    for name, (words, accepts) in _CALLED.items():
        for word in words.finditer(text):
            value = _value_behind(text, word.end(), accepts)
            if value is None:
                continue
            start, end = value
            found.append((word.start(), start, f"{name}: "))
            if not text[end : end + 1].isascii():
                found.append((end, end, " "))
    reached = 0
    for start, end, said in sorted(found):
        if start >= reached:
            yield start, end, said
            reached = end


def _value_behind(text: str, at: int, accepts: Callable[[str], bool]) -> tuple[int, int] | None:
    for told in _TOLD:
        behind = told.match(text, at)
        if behind is None:
            continue
        for form in (_VALUE, _OTHER_VALUE):
            value = form.match(text, behind.end())
            if value is not None and accepts(value[0].rstrip(_NO_END)):
                return value.span()
    return None
