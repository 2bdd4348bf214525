"""Logs, tables, JSON and letters of applications: their numbers and names are nobody's."""

import json

import pytest

from classifiers.pii.detect import find
from classifiers.pii.labels import DataClass, data_class_of
from classifiers.pii.names.soft import soft_findings
from classifiers.pii.scanner import load, with_soft
from classifiers.units import Unit
from classifiers.verdicts import judge
from tests.classifiers.test_worst_cases import Counter


SCANNER = load()
HEX = "4bf92f3577b34da6a3ce929d0e0e4736"
CLEAN: dict[str, str] = {
    "a log": f"""
2024-05-17 08:15:30,123 INFO [http-nio-8080-exec-12] OrderService - order=4500012345 took=125ms
1715933730.123 [DEBUG] conn=140234567890123 fd=37 bytes=1048576 pid=28731
I0517 08:15:30.123456   12345 controller.go:123] trace_id={HEX} span_id=00f067aa0ba902b7
"GET /api/v1/orders/4500012345678 HTTP/1.1" 200 5123 "-" "Chrome/124.0.0.0 Safari/537.36"
""",
    "what a kernel counts": """
MemTotal:       16384256 kB
eth0: 1296843721 1203984    0    0    0     0          0         0 98437219  873421    0    0
btime 1715933730 processes 26442 procs_running 1
""",
    "an answer of a shop": json.dumps(
        {
            "id": "ord_1Mtp2eLkdIwHu7ixuQ2H",
            "created": 1715933730,
            "amount": 129900,
            "tracking": "00340434161094042557",
            "items": [{"sku": "4006381333931", "qty": 2}],
            "request_id": "req_011CSHoEeqs5C35K2UUqR7Fy",
        },
        indent=2,
    ),
    "a table in Markdown": f"""
| id | commit | date | size | sum |
|---|---|---|---:|---|
| 1000451 | 9fceb02 | 2024-05-17 | 104857600 | {HEX} |
| 1000452 | 3e25960 | 2024-05-18 | 209715200 | {HEX[::-1]} |
""",
    "rows of orders": """
order_id;sku;ean;qty;net;gross;account_class
4500012345;A-100-22;4006381333931;3;12,50;14,88;4400
4500012346;A-100-23;5901234123457;1;99,00;117,81;4400
""",
    "measured values": """
timestamp,device_id,lat,lon,temp,pressure,seq
1715933730123,356938035643809,52.5200066,13.4049540,21.5,1013.25,100000001
1715933790456,356938035643817,48.8566140,2.3522219,19.8,1012.75,100000002
""",
    "rows with numbers": "\n".join(
        f"row {i}: {10_824_516_530 + i * 982_451_653}" for i in range(40)
    ),
    "ids by time": " ".join(str(175_928_847_299_117_063 + i * 12_582_912) for i in range(60)),
    "sums of modules": (
        "golang.org/x/crypto v0.23.0 h1:dIJU/v2J8Mdglj/8rJ6UUOM3Zc9zLZxVZwwxMooUSAI=\n"
        "SHA256:dIJU/v2J8Mdglj/8rJ6UUOM3Zc9zLZxVZwwxMooUSAI key fingerprint"
    ),
    "a polygon": "[[[13.088345,52.338271],[13.761161,52.338271]]] bbox=13.088345,52.338271",
    "catalogues": "ISSN 2049-3630, DOI 10.1038/s41586-020-2649-2, arXiv 2405.12345",
    "a letter in German": """
Bitte liefern Sie die Bestellung 4500123456 bis zum 31.12.2024; Auftragsnummer 2024/000815.
Die Ware wurde am 17.05.2024 zugestellt. Rechnungsbetrag: 1.234.567,89 EUR. Steuerung 12345678.
""",
    "a letter in French": """
Bonjour, la commande du 17/05/2024 a été expédiée. Le montant total est de 1 234 567,89 EUR.
La réunion est prévue le jeudi 23 mai à 14h30.
""",
    "a letter in Spanish": """
El pedido 4500123456 se entregará el 17/05/2024. El importe total es de 12.345,67 EUR.
La contraseña debe tener al menos ocho caracteres y vence el 30/06/2024.
""",
    "a letter in Italian": "Gentile cliente, l'ordine è stato spedito il 17/05/2024. Totale 12,50.",
    "words in other words": (
        "a significant 123456789 rows, the database 123456780, class className 078051120, "
        "a uniform 12345678, the Hotel 45001234567, 12345678 workers"
    ),
}


def found(text: str) -> list[tuple[str, str]]:
    return [
        (finding.label, text[finding.start : finding.end])
        for finding in judge(Unit(text), SCANNER).findings
        if data_class_of(finding.label) >= DataClass.S2
    ]


@pytest.mark.parametrize("name", CLEAN)
def test_what_applications_write_is_nobodys(name: str) -> None:
    assert found(CLEAN[name]) == []


@pytest.mark.parametrize(
    ("text", "label", "said"),
    [
        # A word that names something else is part of another one: "port" of "support".
        ("Call our support 555 123 4567", "PHONE", "555 123 4567"),
        ("mobile (important) 98123456", "PHONE", "98123456"),
        ("contact the transport desk 2075551234", "PHONE", "2075551234"),
        ("Monsieur, appelez le 0612345678", "PHONE", "0612345678"),
        ("ssn report 078051120", "US_SSN", "078051120"),
        ("account report 12345678", "BANK_ACCOUNT", "12345678"),
        ("the last bill for cc 503802053770", "CREDIT_CARD", "503802053770"),
        # Names of fields are taken apart, and a word may end one.
        ("userSsn: 078051120", "US_SSN", "078051120"),
        ("userssn=078051120", "US_SSN", "078051120"),
        ("homeTel 45001234567", "PHONE", "45001234567"),
        ("12345678 work", "PHONE", "12345678"),
    ],
)
def test_a_word_counts_where_it_is_one(text: str, label: str, said: str) -> None:
    assert (label, said) in [(f.label, text[f.start : f.end]) for f in find(text)]


def test_every_row_below_an_account_is_one() -> None:
    text = "name,ssn,account\nx,078-05-1120,12345678\ny,078-05-1121,12345679"
    places = [text[f.start : f.end] for f in find(text)]
    assert places == ["078-05-1120", "12345678", "078-05-1121", "12345679"]


def test_a_number_in_groups_or_a_day_is_somebodys_who_is_named_beside_it() -> None:
    row = "12    Leonor Vasconcelos  912 555 038       3\n"
    ((label, said),) = found(row)
    assert (label, said[:11]) == ("PHONE", "912 555 038")
    assert found("12    of 40 to do  912 555 038       3\n") == []
    assert "DOB" in {label for label, _ in found("Anna Schmidt, 1984-11-24, Berlin")}


@pytest.mark.parametrize(
    "text",
    [
        '"api_key": "ord_1Mtp2eLkdIwHu7ixuQ2H"',
        "ord_1Mtp2eLkdIwHu7ixuQ2H",
        f"secret_trace={HEX}",
        f"secret_id={HEX}",
    ],
)
def test_a_random_value_of_another_name_may_be_a_secret(text: str) -> None:
    assert [f.label for f in find(text)] == ["SECRET"]


def test_what_is_soft_is_put_in_its_place_in_linear_time() -> None:
    def work(text: str) -> int:
        with Counter() as counter:
            with_soft([], text)
        return counter.calls

    assert len(with_soft([], "Mr X " * 100)) == len([*soft_findings("Mr X " * 100)]) == 100
    small, large = work("Mr X " * 100), work("Mr X " * 800)
    assert large <= 8.5 * small


INVOICES: dict[str, str] = {
    "Hindi": (
        "\u0917\u094d\u0930\u093e\u0939\u0915 \u0938\u0902\u0916\u094d\u092f"
        "\u093e 30746219\n"
        "\u091a\u093e\u0932\u093e\u0928 \u0938\u0902\u0916\u094d\u092f\u093e 5504256166\n"
        "\u0906\u0926\u0947\u0936 \u0938\u0902\u0916\u094d\u092f\u093e 446458421589\n"
        "\u0930\u0938\u0940\u0926 \u0938\u0902\u0916\u094d\u092f\u093e 8120943755\n"
        "\u0907\u0928\u0935\u0949\u0907\u0938 \u0928\u0902\u092c\u0930 71204481\n"
        "\u0915\u0941\u0932 \u0930\u093e\u0936\u093f 55120\n"
    ),
    "Japanese": (
        "\u4f1d\u7968\u756a\u53f7 813137193151\n"
        "\u767b\u9332\u756a\u53f7 T7916232285182\n"
        "\u5546\u54c1\u30b3\u30fc\u30c9 40718823\n"
        "\u6ce8\u6587\u756a\u53f7 813137193151\n"
        "\u5408\u8a08 878120 \u5186\n"
    ),
    "Russian": (
        "\u041d\u043e\u043c\u0435\u0440 \u0437\u0430\u043a\u0430\u0437\u0430 446458421\n"
        "\u0421\u0447\u0451\u0442 \u2116 81204455 \u043e\u0442 12.11.2026\n"
        "\u0410\u0440\u0442\u0438\u043a\u0443\u043b 30746219\n"
        "\u041d\u043e\u043c\u0435\u0440 \u0437\u0430\u044f\u0432\u043a\u0438 5504256166\n"
    ),
    "Chinese": (
        "\u53d1\u7968\u53f7\u7801 30746219\n"
        "\u8ba2\u5355\u53f7 813137193151\n"
        "\u5feb\u9012\u5355\u53f7 446458421583\n"
        "\u5ba2\u6237\u7f16\u53f7 81204455\n"
    ),
    "Korean": (
        "\uc8fc\ubb38\ubc88\ud638 5504256166\n"
        "\uc1a1\uc7a5\ubc88\ud638 813137193151\n"
        "\uc0c1\ud488\ucf54\ub4dc 81204455\n"
    ),
    "Arabic": (
        "\u0631\u0642\u0645 \u0627\u0644\u0637\u0644\u0628 5504256166\n"
        "\u0631\u0642\u0645 \u0627\u0644\u0641\u0627\u062a\u0648\u0631\u0629 81204455\n"
        "\u0631\u0642\u0645 \u0627\u0644\u0634\u062d\u0646\u0629 813137193151\n"
    ),
}
"""Lines of invoices and orders, as words for numbers and the numbers behind them."""


@pytest.mark.parametrize("language", INVOICES)
def test_numbers_of_invoices_and_orders_are_nobodys_account_in_other_scripts(language: str) -> None:
    lines = INVOICES[language].splitlines()
    for text in (INVOICES[language], *lines, "\n".join(reversed(lines))):
        found = {f.label for f in SCANNER.scan(text).findings}
        assert max(map(data_class_of, found), default=DataClass.S0) < DataClass.S3, found


def test_a_customer_s_account_is_one_all_the_same() -> None:
    text = (
        "\u0917\u094d\u0930\u093e\u0939\u0915 \u0915\u093e \u0916\u093e\u0924\u093e "
        "\u0938\u0902\u0916\u094d\u092f\u093e 446458421589"
    )
    assert "BANK_ACCOUNT" in {finding.label for finding in SCANNER.scan(text).findings}
