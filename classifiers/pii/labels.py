"""Labels of findings and the data class and severity that each of them carries."""

from enum import IntEnum

from msgspec import Struct


class DataClass(IntEnum):
    """Sensitivity of a text; a higher class includes the demands of the lower ones."""

    S0 = 0  # public
    S1 = 1  # internal
    S2 = 2  # personal contact data
    S3 = 3  # sensitive identifiers
    S4 = 4  # secrets and keys


MOST_SENSITIVE = DataClass.S4


class Label(Struct, frozen=True):
    """One kind of finding: its data class, and a severity that orders kinds within a class."""

    name: str
    data_class: DataClass
    severity: int


def _labels(data_class: DataClass, severity: int, names: str) -> dict[str, Label]:
    return {name: Label(name, data_class, severity) for name in names.split()}


LABELS: dict[str, Label] = {
    **_labels(DataClass.S0, 0, "LOCATION ORGANIZATION DATE_TIME URL AGE NRP TITLE"),
    **_labels(DataClass.S1, 10, "IN_IFSC SWIFT_BIC"),
    **_labels(DataClass.S1, 15, "PERSON"),
    **_labels(DataClass.S2, 40, "ADDRESS"),
    **_labels(DataClass.S2, 20, "IP_ADDRESS MAC_ADDRESS USERNAME EMPLOYEE_ID VEHICLE_REG"),
    **_labels(DataClass.S2, 30, "EMAIL PHONE IN_UPI DOB US_NPI US_ROUTING"),
    **_labels(DataClass.S3, 60, "IN_GSTIN IN_VOTER_ID PASSPORT DRIVER_LICENSE NATIONAL_ID MRN"),
    **_labels(DataClass.S3, 60, "UK_NHS UK_NINO CA_SIN US_SSN US_ITIN IN_AADHAAR IN_PAN"),
    **_labels(DataClass.S3, 70, "CREDIT_CARD IBAN BANK_ACCOUNT CRYPTO_WALLET"),
    **_labels(DataClass.S4, 90, "SECRET JWT PASSWORD"),
    **_labels(DataClass.S4, 100, "PRIVATE_KEY"),
}


# Labels that say nothing about a person by themselves: no reason to keep a text in-house.
SOFT = frozenset(name for name, label in LABELS.items() if label.data_class is DataClass.S0)


def data_class_of(label: str) -> DataClass:
    """Data class of a label; an unknown label counts as the most sensitive one."""
    known = LABELS.get(label)
    return known.data_class if known is not None else MOST_SENSITIVE
