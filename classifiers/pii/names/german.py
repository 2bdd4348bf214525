"""Tells German nouns, which are capitalised like names, from the names in a sentence.

The tagger learned most from English, and takes a noun in mid-sentence for a person. A single word
after an article is a noun, and so is one with an ending that no name has; two words with capitals,
and one after "Frau" or a job title, may be a name. A name written as "der Huber" is missed.
"""

import re
from typing import Final


_SENTENCE: Final = 200
_BOUND: Final = re.compile(r"[.!?:;]\s|\n")
_LETTERS: Final = re.compile(r"[^\W\d_]+")
_WORDS_OF_GERMAN: Final = frozenset(
    """
    der die das den dem des ein eine einen einem einer eines kein keine und oder aber ist sind war
    wird
    werden wurde wurden hat haben hatte nicht noch nur auch sich mit von vom zum zur zu im am beim
    ins
    auf aus bei nach seit für über unter zwischen wegen gegen durch ohne bis wie als wenn weil
    dass daß
    ich wir sie er es ihr bitte kann können muss müssen soll sollen wieder schon mehr sehr hier
    dort
    in an um ab so da dann doch nun jetzt gestern heute morgen seit vor hinter neben alle unser
    unsere
    """.split()  # noqa: SIM905 - a list literal would fill a screen.
)
_ENGLISH_TOO: Final = frozenset(
    {
        "die",
        "am",
        "war",
        "des",
        "den",
        "hat",
        "bis",
        "mit",
        "es",
        "er",
        "in",
        "an",
        "so",
        "da",
        "ab",
    }
)
_ENGLISH: Final = frozenset(
    "the of and to is are was were for with from by at it this that you we they his her".split()  # noqa: SIM905 - short.
)
_LEAST: Final = 2
_DETERMINERS: Final = frozenset(
    """
    der die das den dem des ein eine einen einem einer eines kein keine keinen keinem keiner im am
    zum
    zur vom beim ins ans aufs fürs mein meine meinen meinem meiner dein deine deinen deinem deiner
    seine seinen seinem seiner seines ihre ihren ihrem ihrer ihres unser unsere unseren unserem
    unserer
    euer eure euren eurem dieser diese dieses diesen diesem jener jene jedes jeder jede jeden jedem
    welche welcher welches alle allen aller beide beiden einige einigen mehrere mehreren viele
    vielen
    wenige solche pro je zwei drei vier fünf sechs sieben acht neun zehn
    """.split()  # noqa: SIM905 - as above.
)
_ENDINGS: Final = re.compile(
    r".{3,}(?:ung|ungen|heit|heiten|keit|keiten|schaft|schaften|tion|tionen|sion|sionen|ität"
    r"|itäten"
    r"|nisse|nissen|tum|ismus|werk|werke|zeug|zeuge|stoff|stoffe|gerät|geräte|stück|stücke|satz"
    r"|sätze"
    r"|papier|blatt|gabe|gaben|nahme|nahmen|gang|gänge|zahl|zahlen|plan|pläne|schein|scheine"
    r"|ruf|rufe"
    r"|fall|fälle|recht|rechte|rechts|brief|briefe|gymnastik|beläge|antrag|anträge|vertrag"
    r"|verträge"
    r"|ersatz|ersatzes|eigentümer|inhaber|stelle|stellen|räume|rechnung|kosten|dienst|dienste"
    r"|straße)"
    r"|.{4,}(?:nis|ment|enz|anz|ur|ei)"
)
"""After three letters or more; "Hartung" and "Denis" are checked against `_NAMES`."""
_NAMES: Final = frozenset(
    """
    Hartung Nürnberg Dennis Denis Adonis Clement Clemens Vincenz Lorenz Florenz Constanz Konstanz
    Arthur
    Artur Timur Balthasar Andrei Sergei Alexei Nikolai Matei Karung Yung Jung Hornung Wartung
    Prantl
    Rozenburg Lesnei Maurer Kuznetsov Terrence Florance Laurenz Hermannstadt Recht Albrecht
    Ruprecht
    Lamprecht Engelbrecht Liebrecht Rupprecht Westfall Rosenthal Kaplan Milan Ottenstein
    Kirschstein
    """.split()  # noqa: SIM905 - as above.
)
# What no ending tells apart, and hardly anybody is called.
_NOUNS: Final = frozenset(
    """
    Ablage Akte Akten Aktien Anlage Anlagen Anleihe Anleihen Arbeit Ausgabe Bahn Balkon Batterie
    Bauteil
    Bedarf Befund Behälter Beitrag Beiträge Bericht Berichte Bescheid Beschwerde Beschwerden
    Betrag Betrieb
    Bildschirm Blech Blut Boden Bremse Bremsen Brötchen Budget Daten Datei Dateien Deckel Dichtung
    Drehmoment
    Drehzahl Druck Drucker Eingang Entwurf Ergebnis Ersatzteile Fahrer Fehler Fieber Filter Flur
    Frist Fristen
    Förderung Gebäude Gebühr Gebühren Gehalt Gehälter Gelände Gemüse Gerät Geräte Geschirr
    Getriebe Gewicht
    Gewinn Gutschrift Hafen Halle Haus Häuser Heizung Herbst Husten Inhalt Kabel Kapital Karte
    Karten Kasse
    Kessel Kette Ketten Klage Klagen Kleidung Kosten Kredit Kunde Kunden Kupplung Lager Last
    Leistung Leitung
    Lieferant Lieferanten Lüfter Mahnung Mangel Mängel Maschine Maschinen Menge Mengen Messe Miete
    Mieter
    Mitarbeiter Mittel Montage Motor Mängelliste Muster Nebel Netz Netzwerk Obst Ordner Pacht
    Paket Pakete
    Palette Paletten Papier Passwort Pflanze Pflanzen Pflege Platte Platten Preis Preise Produkt
    Produkte
    Projekt Projekte Protokoll Protokolle Prüfer Pumpe Pumpen Quelle Rabatt Rad Räder Raum Regal
    Regale Regel
    Regen Reifen Reise Rente Reparatur Ritzel Rohr Rohre Rost Salbe Schaden Schäden Schalter
    Schicht Schlauch
    Schlüssel Schmerz Schmerzen Schnee Schraube Schrauben Schuld Schulden Schutz Sensor Server
    Skonto Software
    Speicher Spende Spenden Sprache Start Steuer Steuern Stimme Stoff Straße Strom System Systeme
    Tablette
    Tabletten Tarif Tasche Technik Teil Teile Termin Termine Test Tests Text Texte Thema Themen
    Tisch Tonnen
    Träger Treiber Treppe Tür Türen Übelkeit Umsatz Umsätze Unfall Unterlagen Unterschrift Urlaub
    Ursache
    Urteil Urteile Ventil Ventile Verbrauch Verfahren Verkauf Verkehr Verlust Verluste Verschleiß
    Versand
    Vertrieb Verzug Vorrat Vorräte Waage Ware Waren Wartung Wasser Wege Werkzeug Wetter Wohnung
    Zähler Zeit
    Zeiten Zimmer Zinsen Zoll Zucker Zugang Zusage Zustand
    """.split()  # noqa: SIM905 - as above.
)
_LONGEST_NAME: Final = 13
_BEFORE_NAMES: Final = re.compile(
    r"(?:\b(?:herrn?|frau|fräulein|dr|prof|dipl|ing|med|familie|firma|namens|von|heißt|heiße"
    r"|bin|gez"
    r"|gezeichnet|kollegin?|kollegen|nachbarin?|tante|onkel|oma|opa|schwester|bruder|pfleger"
    r"|notar\w{0,2}"
    r"|richter\w{0,2}|anw[aä]lt\w{0,2}|lehrer\w{0,2}|trainer\w{0,2}|minister\w{0,2}|azubi"
    r"|chef\w{0,2})\.?\s?)\Z",
    re.IGNORECASE,
)


_OF_NOBILITY: Final = re.compile(r"\b(?:von|van|zu) (?:der|den|dem)\s\Z", re.IGNORECASE)


def nouns_part(text: str, start: int, end: int) -> tuple[int, int] | None:
    """The part of a supposed name that may be one in a German sentence; None if none may."""
    near = text[max(0, start - _NEAR) : end + _NEAR].lower().split()
    if _TELLING.isdisjoint(near):  # Most texts are no German, and this is asked of each name.
        return start, end
    first, last = _sentence(text, start, end)
    if not _is_german(text[first:last]):
        return start, end
    words = [match.span() for match in _LETTERS.finditer(text, start, end)]
    while words and text[words[-1][0]].islower():
        words.pop()
    while words and text[words[0][0]].islower() and not _is_particle(text[slice(*words[0])]):
        words.pop(0)
    if len(words) > 1 and words[0][0] == first and text[slice(*words[0])].lower() in _DETERMINERS:
        words.pop(0)  # "Der Kran"
    if not words:
        return None
    begin, stop = words[0][0], (words[-1][1] if text[words[-1][1] : end].strip() else end)
    said = text[begin:stop].rstrip(".,;")
    if not said.isalpha():
        return begin, stop
    before = text[first:begin]
    if _BEFORE_NAMES.search(before) is not None:
        return begin, stop
    return None if _is_noun(said, before) else (begin, stop)


_NEAR: Final = 100
_TELLING: Final = (_WORDS_OF_GERMAN | _DETERMINERS) - (_ENGLISH_TOO - {"den", "des", "hat"})


def _is_particle(word: str) -> bool:
    return word in {"von", "zu", "van", "de", "di", "da", "el", "al", "bin", "ten", "vom", "zum"}


def _is_noun(said: str, before: str) -> bool:
    previous = before.rstrip(" \u201e\"'(*_").rpartition(" ")[2].lstrip("\u201e\"'(*_")
    if previous.lower() in _DETERMINERS:
        return _OF_NOBILITY.search(before) is None
    # "feuchtem Putz", behind a number that is written: endings that no verb has.
    if previous.endswith("em") and previous.islower():
        return True
    if said in _NAMES or said.removesuffix("s") in _NAMES:
        return False
    return said in _NOUNS or len(said) > _LONGEST_NAME or _ENDINGS.fullmatch(said) is not None


def _sentence(text: str, start: int, end: int) -> tuple[int, int]:
    first = max(0, start - _SENTENCE)
    for bound in _BOUND.finditer(text, first, start):
        first = bound.end()
    stop = _BOUND.search(text, end, end + _SENTENCE)
    return first, min(len(text), end + _SENTENCE) if stop is None else stop.start()


def _is_german(sentence: str) -> bool:
    """Two of the words that every German sentence needs, or one and no English word."""
    words = frozenset(_LETTERS.findall(sentence.lower()))
    found = words & (_WORDS_OF_GERMAN | _DETERMINERS)
    if len(found) < _LEAST or found <= _ENGLISH_TOO:
        is_other = found <= _ENGLISH_TOO and len(found) < _LEAST
        return bool(found) and not is_other and words.isdisjoint(_ENGLISH)
    return True
