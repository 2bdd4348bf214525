"""Words for PINs, door codes and one-time codes in scripts other than Latin.

Such a word is read as if it stood there in English, as in `called`; the rules are those of `pins`.
"""

# ruff: noqa: RUF001 - the words and marks of other scripts are what this is about.

import re
from collections.abc import Iterator
from typing import Final

import re2

from classifiers.pii.gate import options
from classifiers.pii.views.decoded import Change


_WORDS: Final = """
    暗証番号 認証コード 認証番号 確認コード 確認番号 ワンタイムパスワード ワンタイムコード
    セキュリティコード
    セキュリティ番号 解錠コード 解錠番号 入館コード キーコード ドアコード パスコード パスワード
    PINコード PIN番号 PINナンバー
    验证码 驗證碼 校验码 动态码 動態碼 动态口令 动态密码 动态密碼 安全码 安全碼 门禁码 门禁密码
    門禁密碼 开门密码
    开锁码 门锁密码 取款密码 支付密码 PIN码 PIN碼 密码 密碼 口令
    비밀번호 인증번호 인증코드 인증_코드 보안코드 보안_코드 보안번호 핀번호 핀_번호 핀코드
    출입번호 현관번호 현관_비번 비번
    PIN번호 일회용_비밀번호
    पिन_नंबर पिन ओटीपी सीवीवी गुप्त_कोड सत्यापन_कोड दरवाज़े_का_कोड दरवाजे_का_कोड सुरक्षा_कोड
    رقم_التعريف_الشخصي الرقم_السري رقم_سري رمز_التحقق رمز_الدخول رمز_الباب رمز_الأمان رمز_الامان
    رمز_المرور
    كلمة_المرور كلمة_السر كود_التحقق كود_الباب رمز_PIN
    ПИН-код пин-код пин-кода ПИН пин PIN-код код_домофона код_от_домофона код_подтверждения
    код_двери
    код_от_двери код_из_СМС код_из_смс CVV-код код_доступа код_проверки код_безопасности
    одноразовый_код
    ПІН-код код_підтвердження код_домофону קוד_אימות קוד_כניסה קוד_סודי κωδικός_PIN
    κωδικός_επαλήθευσης
    รหัส_OTP รหัส_PIN รหัสยืนยัน
    """.split()  # noqa: SIM905 - a list literal would fill a screen.
_NAMES: Final = sorted({word.replace("_", " ") for word in _WORDS}, key=len, reverse=True)
_OCCURS = re2.compile("|".join(_NAMES).encode(), options())
_IS: Final = r"(?:는|은|이|가|をお?|は|が|是|为|為|है|हैं|की|का|هو|هي|:|：|=|＝|—|–|-|〜|\()"
_OPENED: Final = r"[\"'`*「『“«\[【（(]{0,3}"
_WHOSE: Final = r"(?:[ 的の의][^\s0-9\n:：=，。、]{1,12}){0,3}?"
_VALUE: Final = re.compile(
    rf"(?:{_WHOSE}[\"'`*)\]）」】]{{0,3}}\s?{_IS}{{1,2}}|[ \u3000])?\s{{0,3}}{_OPENED}"
    r"(\d{3,8}|\d{3}[ \-]\d{3})(?![\d.:/%-]\d|\d)"
)
_POSTAL: Final = re.compile(r"\d{6}")
_HINDI_PIN: Final = "पिन"
_BEFORE_LETTER: Final = re.compile(r"[^\W\d_]")
_PARTS_WORDS: Final = re.compile(r"[а-яёіїєґА-ЯЁІЇЄҐ]")


def is_called_pin(text: str) -> bool:
    """Whether such a word occurs."""
    return _OCCURS.search(text.encode("utf-8", "surrogatepass")) is not None


def called_pins(text: str) -> Iterator[Change]:
    """A word, and the text from it to digits, replaced by the word in English."""
    reached = 0
    for word in _NAME.finditer(text):
        start, end = word.span()
        # In scripts with blanks a word is no part of another: "спина" has a pin in it.
        if start < reached or (_PARTS_WORDS.match(word[0]) and _is_part(text, start, end)):
            continue
        value = _VALUE.match(text, end)
        if value is None or (word[0] == _HINDI_PIN and _POSTAL.fullmatch(value[1]) is not None):
            continue
        yield start, value.start(1), " OTP: "
        reached = value.end(1)
        if not text[reached : reached + 1].isascii():
            yield reached, reached, " "


_NAME: Final = re.compile("|".join(map(re.escape, _NAMES)))


def _is_part(text: str, start: int, end: int) -> bool:
    return bool(_BEFORE_LETTER.match(text[start - 1 : start] + text[end : end + 1])) or bool(
        _BEFORE_LETTER.match(text[end : end + 1])
    )
