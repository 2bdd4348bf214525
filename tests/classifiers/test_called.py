"""Passwords and keys are found by what they are called in other languages and scripts."""

import random

import pytest

from classifiers.pii.credentials.called import called
from classifiers.pii.detect import find
from classifiers.pii.views.decoded import with_changes
from tests.classifiers import samples


RNG = random.Random(23)
PASSWORD = f"Tr{RNG.randrange(10, 99)}ub{RNG.choice('&+#!')}dor{RNG.randrange(10)}x"
TOKEN = samples.token(RNG, 20)
PASSWORDS = (
    "मेरा पासवर्ड: {} है",
    "पासवर्ड है {}",
    "パスワード：{}",
    "新しいパスワードは「{}」です",
    "パスワードは{}です",
    "密码：{}",
    "数据库密码是{}，请保密",
    "密碼: {}",
    "登录口令＝{}",
    "비밀번호: {}",
    "비밀번호는 {} 입니다",
    "كلمة المرور: {}",
    "كلمة السر هي {}",
    "رمز عبور: {}",
    "мой пароль: {}",
    "Пароль от почты: {}.",
    "ПАРОЛЬ {}",
    "пароль — {}",
    "הסיסמה: {}",
    "รหัสผ่าน: {}",
    "κωδικός πρόσβασης: {}",
    "కొత్త పాస్‌వర్డ్: {}",
    "hasło: {}",
    "Moje hasło to {}",
    "a senha é {}",
    "heslo je {}",
    "het wachtwoord is {}",
    "lösenord: {}",
    "şifre: {}",
    "mật khẩu: {}",
)
KEYS = ("密钥：{}", "トークン：{}", "토큰: {}", "токен: {}", "API टोकन: {}", "مفتاح: {}")


@pytest.mark.parametrize("said", PASSWORDS)
def test_a_password_is_found_behind_its_word(said: str) -> None:
    text = said.format(PASSWORD)
    found = [(f.label, text[f.start : f.end].rstrip(".")) for f in find(text)]
    assert found == [("PASSWORD", PASSWORD)]


@pytest.mark.parametrize("said", KEYS)
def test_a_key_is_found_behind_its_word(said: str) -> None:
    text = said.format(TOKEN)
    assert [(f.label, text[f.start : f.end]) for f in find(text)] == [("SECRET", TOKEN)]


def test_a_password_may_be_of_its_language_s_letters() -> None:
    text = "Пароль: Кошка" + samples.digits(RNG, 4)
    assert [(f.label, text[f.start : f.end]) for f in find(text)] == [("PASSWORD", text[8:])]


@pytest.mark.parametrize(
    "text",
    [
        "Пароль должен содержать не менее 8 символов.",
        "Введите пароль и нажмите кнопку.",
        "密码必须至少包含八个字符。",
        "パスワードを忘れた場合はこちら",
        "비밀번호를 잊으셨나요?",
        "نسيت كلمة المرور؟ اضغط هنا",
        "पासवर्ड भूल गए? यहाँ क्लिक करें",
        "пароль: ${DB_PASSWORD}",
        "密码: your_password_1",
        "Nosso lema: a senha deve ser forte; heslo dne: pravda",
    ],
)
def test_words_for_passwords_alone_are_none(text: str) -> None:
    assert find(text) == ()


def test_words_are_put_in_their_place_and_values_are_left() -> None:
    text = f"密码是{PASSWORD}请登录, токен: {TOKEN}"
    decoded = with_changes(text, called(text))
    assert decoded is not None
    assert decoded.text == f"password: {PASSWORD} 请登录, secret: {TOKEN}"
