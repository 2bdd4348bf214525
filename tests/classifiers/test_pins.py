"""PINs, codes of doors and cards and codes for one use, by their names in many languages."""

import pytest

from classifiers.inspection import inspect
from classifiers.pii.detect import find
from classifiers.pii.labels import DataClass


CODES = (
    "PIN is «4821»", "My PIN is «4821».", "the pin: «4821»", "your PIN for the card is «4821»",
    "PIN «4821»", "the door code is «7731»", "gate code «7731»#", "code for the garage is «7731»",
    "alarm code = «9931»", "the front door code: «B4821»", "access code: «48213»",
    "Safe combination «12-34-56»", "TAN: «883921»", "iTAN «883921»", "pushTAN: «883 921»",
    "CVV «123»", "cvc: «123»", "security code: «123»", "card security code is «1234»",
    "OTP «482913»", "Your OTP is «482913»", "one-time code «482-913»",
    "your verification code for the portal: «482913»", "«482913» is your verification code",
    "passcode «4821»", "G-«482913» is your Google verification code", '{"pin": "«4821»"}',
    '{"cvv": «123»}', "otp=«482913»", "**PIN:** `«4821»`", "PIN: «4821»", "PUK «48213377»",
    "voicemail code «4821»", "Die PIN lautet «4821»", "Meine PIN ist «4821»",
    "Die TAN ist «883921»", "Türcode «7731»", "Geheimzahl: «4821»",
    "Der Code für die Haustür ist «7731»", "Bestätigungscode «482913»", "Kartenprüfnummer «1234»",
    "Mon code PIN est «4821»", "Le code d'entrée est «7731»", "code confidentiel : «4821»",
    "digicode «B4821»", "le code du portail est «7731»", "Mi PIN es «4821»",
    "el código de la puerta es «7731»", "código de verificación: «482913»", "Il PIN è «4821»",
    "il codice del portone è «7731»", "codice di accesso «48213»", "O PIN é «4821»",
    "a senha do cofre é «7731»", "código de acesso: «48213»", "De pincode is «4821»",
    "toegangscode «48213»", "Kod PIN: «4821»", "kod do domofonu to «7731»", "kod dostępu «48213»",
    "PIN kodum «4821»", "doğrulama kodu: «482913»", "kapı şifresi «7731»", "PIN-код «4821»",
    "код домофона «7731»", "код подтверждения: «482913»", "ПИН «4821»", "मेरा पिन «4821» है",
    "ओटीपी «482913» है", "पिन नंबर है «४८२१»", "暗証番号は«4821»です", "認証コード：«482913»",
    "門の暗証番号は«7731»", "PINコード「«4821»」", "密码是«4821»", "验证码：«482913»",
    "您的验证码 «482913»，请勿泄露", "門禁密碼 «7731»", "비밀번호는 «4821»입니다",
    "인증번호 [«482913»]", "현관 비번 «7731»", "رقم التعريف الشخصي: «4821»", "رمز التحقق «482913»",
    "الرقم السري هو «٤٨٢١»",
)  # fmt: skip
NONE = (
    "PIN diode 1N4148", "ZIP code 12345", "error code 4821", "pin 4821 to the top",
    "PIN 4 of the connector", "Mumbai, PIN: 400001", "pin code 560001", "Pincode - 110001",
    "पिन कोड 560001", "पिन: 560001", "exit code 1234", "status code 4290", "country code 0049",
    "discount code 4821", "postcode 2024", "International Building Code 2021",
    "building code 1005.3", "the tan is 0.5772", "tan 4821", "Erlang OTP 26", "OTP-18234 is fixed",
    "OTP 2024", "the access code review of 2024", "spin 4821 times", "CVC 2023 in Vienna",
    "bowling pins: 4821", "LED_PIN = 13", "a pin on 4821 maps", "security code of conduct 2024",
    "Der Quellcode hat 4821 Zeilen", "le code postal est 75011", "el código postal es 28013",
    "kod pocztowy 00950", "posta kodu 34000", "код ошибки 4821", "спина 4821", "邮政编码 100000",
    "郵便番号 1000001", "错误码 4821", "우편번호 04524", "الرمز البريدي 11564", "密码至少8位",
    "パスワードは8文字以上", "비밀번호는 8자 이상", "The PIN has 4 digits.",
    "PIN must be 4 to 8 digits", "the verification code expires in 600 seconds",
    "CVV is the 3 digits on the back", "OTP length: 6", "your code review 4821",
)  # fmt: skip


@pytest.mark.parametrize("said", CODES)
def test_a_code_behind_its_name_stays_home(said: str) -> None:
    start, end = said.index("«"), said.index("»") - 1
    text = said.replace("«", "").replace("»", "")
    found = find(text)
    assert [f.label for f in found] == ["PASSWORD"]
    assert found[0].start <= start
    assert found[0].end == end


@pytest.mark.parametrize("text", NONE)
def test_digits_behind_other_names_are_none(text: str) -> None:
    assert not [f for f in find(text) if f.label == "PASSWORD"]


def test_the_heading_of_a_column_names_its_codes() -> None:
    for table in (
        "| user | PIN |\n|---|---|\n| 17 | 4821 |",
        "id;cvv\n17;123",
        "id\totp\n17\t482913",
    ):
        assert "PASSWORD" in {f.label for f in find(table)}, table


def test_such_a_text_is_of_the_most_sensitive_class() -> None:
    fields = {"role": "user", "content": "The door code is 7731, please remind Anna."}
    assert inspect({"messages": [fields]}).data_class is DataClass.S4
