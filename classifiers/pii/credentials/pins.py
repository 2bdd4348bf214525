"""Pattern table of short access codes: PINs, door codes, card codes, one-time codes.

Four digits alone can be anything. They are such a code after a word for one, but not after "error
code", after a connector's pin, or where India writes a six-digit postal code after that word.
"""

import re

from classifiers.pii.rules import Rule


_PLACES = (
    r"(?:front |back |main |side |garden |car ?park |parking )?(?:door|gate|garage|alarm|safe"
    r"|lock|locker"
    r"|keypad|key ?box|key ?safe|entry|entrance|elevator|padlock|vault|intercom)"
)
_ENGLISH = (
    rf"{_PLACES}(?: system)? (?:code|pin|combination)|(?:access|security|verification"
    rf"|authentication"
    r"|authenticator|authori[sz]ation|unlock|login|log-in|sign-in|sms|2fa|mfa|one[- ]time|entry"
    r"|voicemail|puk"
    rf"|secret|card verification) (?:code|pin)|code (?:for|to|of) (?:the |our "
    rf"|my )?(?:{_PLACES}|building|house|office|flat|lift)|passcode"
    r"|one[- ]time (?:pass(?:word|code)|pin)|card (?:security|verification) (?:code|number)"
)
_GERMAN = (
    r"geheimzahl|geheimnummer|(?:haus|wohnungs|garagen|hof)?t[u]e?rcode|(?:zugangs|sicherheits"
    r"|bestatigungs"
    r"|zutritts|einmal|alarm|tor|schloss|safe|tresor|verifizierungs|freischalt|entsperr"
    r"|eingangs)-?code|einmalpasswort"
    r"|kartenprufnummer|kartenprufziffer|prufnummer der karte"
    r"|code (?:fur|von|zur|zum|vom)(?: die| der| das| den| dem)? (?:haust?ur|tur|tor|hoftor"
    r"|safe|tresor"
    r"|garage|alarmanlage|schloss|eingang)"
)
_FRENCH = (
    r"code (?:confidentiel|secret|pin|d'(?:entree|acces|authentification)|de (?:la porte"
    r"|verification|securite"
    r"|l'immeuble|l'alarme|deverrouillage|validation)|du (?:portail|coffre|digicode|batiment"
    r"|cadenas)"
    r"|a usage unique)|digicode|cryptogramme(?: visuel)?"
)
_SPANISH = (
    r"codigo (?:secreto|pin|de (?:la puerta|acceso|seguridad|verificacion|la alarma|entrada"
    r"|desbloqueo"
    r"|un solo uso|la caja fuerte)|del (?:portal|garaje|candado))|clave (?:secreta|de acceso"
    r"|de la alarma)"
)
_ITALIAN = (
    r"codice (?:segreto|pin|di (?:accesso|sicurezza|verifica|sblocco)|del(?:la|l')? ?(?:portone"
    r"|porta"
    r"|cancello|allarme|cassaforte|garage|lucchetto)|monouso)"
)
_PORTUGUESE = (
    r"codigo (?:secreto|pin|de (?:acesso|seguranca|verificacao|desbloqueio)|d[ao] (?:porta|portao"
    r"|alarme|cofre|garagem|predio))|senha d[ao] (?:cofre|cartao|alarme|porta|portao|cadeado)"
)
_DUTCH = r"(?:toegangs|deur|poort|alarm|verificatie|beveiligings|bevestigings)code|eenmalige code"
_POLISH = (
    r"kod(?:u|em)? (?:pin|dostepu|weryfikacyjny|jednorazowy|bezpieczenstwa|sms|do (?:domofonu"
    r"|drzwi|bramy"
    r"|alarmu|sejfu|klatki|furtki|garazu|budynku))"
)
_TURKISH = (
    r"(?:pin|dogrulama|guvenlik|onay|giris|kap.|alarm|sms) (?:kod|sifre)[a-z?]{0,5}"
    r"|tek kullan.ml.k sifre[a-z?]{0,4}"
)
_LANGUAGES = (
    *(_ENGLISH, _GERMAN, _FRENCH, _SPANISH, _ITALIAN, _PORTUGUESE, _DUTCH, _POLISH, _TURKISH),
)
_PHRASES = "|".join(_LANGUAGES)
_WHOSE = (
    r"(?:[ \t](?:for|of|to|from|on|at|fur|von|der|des|zum|zur|pour|de|du|del|della|di|da|do|van"
    r"|voor|dla)"
    r"[ \t][^\n.:=;,0-9\x1f]{1,32}?)?"
)
_QUOTES = r"[\"'`*\[(<]{0,4}"
_SAYS = (
    r"[\"'`*)\]]{0,4}(?:[ \t]{0,3}(?:=>|->|[:=\x1f|])[*_]{0,3}[ \t]{0,3}"
    r"|[ \t](?:(?:is|was|ist|lautet|war|est|es|era|e|to|jest|je|ar)(?: now| jetzt"
    r"| again)?:?)[ \t]{1,3})" + _QUOTES
)
_VALUE = (
    r"([0-9]{4,8}|[0-9]{3,4}[ \-][0-9]{3,4}|[0-9](?:[ \-][0-9]){3,7}"
    r"|[0-9]{1,2}(?:-[0-9]{1,2}){2,3}|[0-9]{3}"
    r"|[A-Z][0-9]{3,5}[A-Z]?|[0-9]{3,5}[A-Z]|[0-9]{2}[A-Z][0-9]{2})"
)
_END = r"(?:[^0-9A-Za-z.,:%/\-]|[.,:\-](?:[^0-9]|$)|$)"
_LETTERS_ALONE = r"(?:PIN|TAN|[mei]TAN|OTP|PUK|NIP)"
_YEAR = re.compile("(?:19|20)[0-9]{2}")
_OF_DIGITS_LEAST = 4
_POSTAL_LENGTH = 6


def _digits(text: str) -> int:
    return sum(map(str.isdigit, text))


def _is_code(text: str) -> bool:
    """A card's code has at least three digits, any other at least four."""
    return _digits(text) >= _OF_DIGITS_LEAST or not text.isdigit()


def _is_no_year(text: str) -> bool:
    return _is_code(text) and _YEAR.fullmatch(text) is None


def _is_pin(text: str) -> bool:
    """India's postal codes are called PIN too; they have six digits."""
    return _is_code(text) and (_digits(text) != _POSTAL_LENGTH or not text[0].isdigit())


PINS: tuple[Rule, ...] = (
    Rule(
        "PASSWORD",
        "pin-phrase",
        rf"(?i)(?:\b|_)(?:{_PHRASES})(?:{_WHOSE}{_SAYS}|[ \t]){_VALUE}{_END}",
        0.8,
        _is_no_year,
        gate=rf"(?i)(?:\b|_)(?:{_PHRASES})[^\n0-9]*[0-9]",
    ),
    Rule(
        "PASSWORD",
        "card-code",
        rf"(?i)(?:\b|_)(?:cv[vc]2?|csc|security code)(?: code| number)?(?:{_WHOSE}{_SAYS}"
        rf"|[ \t])([0-9]{{3,4}}){_END}",
        0.8,
        lambda text: _YEAR.fullmatch(text) is None,
        gate=r"(?i)(?:\b|_)(?:cv[vc]2?|csc|security code)\b[^\n0-9]*[0-9]{3}",
    ),
    Rule(
        "PASSWORD",
        "pin",
        rf"(?:\b|_)(?i:pin|puk|nip|pin[- ]?code|pin[- ]?number|pin[- ]?nummer|code pin|kod pin)"
        rf"{_WHOSE}{_SAYS}{_VALUE}{_END}",
        0.8,
        _is_pin,
        gate=r"(?i)(?:\b|_)(?:pin|puk|nip)(?:[^A-Za-z0-9]|code|nummer)[^\n0-9]*[0-9]{3}",
    ),
    Rule(
        "PASSWORD",
        "one-time",
        rf"(?:\b(?:TAN|[mei]TAN|(?:push|sms|photo|chip)-?TAN)|(?:\b|_)(?i:otp)(?:(?i:[- ]code)"
        rf"|(?i:[- ]number))?)"
        rf"{_WHOSE}{_SAYS}{_VALUE}{_END}",
        0.8,
        _is_code,
        gate=r"(?:TAN|(?i:otp))[^\n0-9]*[0-9]",
    ),
    Rule(
        "PASSWORD",
        "pin-alone",
        rf"\b{_LETTERS_ALONE}[ \t]{{1,2}}{_QUOTES}([0-9]{{4,8}}){_END}",
        0.7,
        lambda text: _is_no_year(text) and (len(text) != _POSTAL_LENGTH),
        gate=rf"\b{_LETTERS_ALONE}[ \t]{{1,2}}{_QUOTES}[0-9]{{4}}",
    ),
    Rule(
        "PASSWORD",
        "one-time-alone",
        rf"\b(?:[mei]?TAN|OTP)[ \t]{{1,2}}{_QUOTES}([0-9]{{6}}){_END}",
        0.7,
        gate=rf"\b(?:[mei]?TAN|OTP)[ \t]{{1,2}}{_QUOTES}[0-9]{{6}}",
    ),
    Rule(
        "PASSWORD",
        "code-is-yours",
        r"(?i)(?:^|[^0-9A-Za-z.,\-])(?:g-)?([0-9]{4,8})[ \t](?:is|ist|est|es|e|to)[ \t]"
        r"(?:your|my|the|ihr|dein|der|votre|ton|tu|su|il tuo|o seu"
        r"|twoj)[ \t](?:[A-Za-z']{2,16}[ \t]){0,3}"
        r"(?:verification code|security code|login code|passcode|one[- ]time (?:code|password)"
        r"|otp|pin|tan"
        r"|door code|access code|bestatigungscode|sicherheitscode|code de (?:verification"
        r"|securite)"
        r"|codigo de (?:verificacion|seguridad|verificacao)|codice di (?:verifica|sicurezza)"
        r"|kod weryfikacyjny)\b",
        0.8,
        gate=(
            r"(?i)[0-9]{4}[ \t](?:is|ist|est|es|e|to)[ \t](?:your|my|the|ihr|dein|der|votre|ton"
            r"|tu|su|il|o|twoj)"
        ),
    ),
)
