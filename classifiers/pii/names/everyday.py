"""Everyday words of eight languages, and of machines, that rule out a learned name.

The tagger learned most from English, and easily takes what it has not seen for a name. Only words
that are not first names in the gazetteer are listed.
"""

# ruff: noqa: RUF001 - Russian words are written in Russian letters.

import re
from typing import Final


# What English bodies are called, which is written with a capital and is no name of a person.
_ENGLISH_BODIES = """
orchestra university hospital township museum stadium airport festival tournament championship
committee ministry parliament government hurricane dynasty republic cathedral
"""
# The same in French, Spanish, Italian and Polish, with what stands beside them.
_OTHER_BODIES = """
mairie préfecture tribunal instance ministère conseil régional départemental clinique comptabilité
juridique technique ayuntamiento consejería juzgado junta directiva dirección financiero
financiera sanidad urgencias plaza estación comisaría consiglio comunale comitato ministero
tribunale ordinario camera commercio agenzia entrate regolatore stazione centrale direzione
didattica questura assessorato rada miejska rynek główny główna sąd okręgowy rejonowy urząd
skarbowy gminny ministerstwo zdrowia dyrektor finansowy dworzec centralny dworca centralnego
zarząd spółki zgromadzenie
"""
# They also stand in front of surnames.
_BEFORE_SURNAMES = """
a al da das de del della den der di do dos du e el i la le ten van von y zu zum
"""
_GERMAN = """
der die das und in den von zu mit sich des auf für ist im dem nicht ein eine als auch es an werden
aus er hat dass sie nach wird bei einer um am sind noch wie einem über einen so zum war haben nur
oder aber vor zur bis mehr durch man sein wurde sei prozent hatte kann gegen vom können schon wenn
habe seine ihre dann unter wir soll ich eines jahr zwei jahren diese dieser wieder keine uhr
seiner worden zwischen immer millionen was sagte gibt alle seit muss wurden beim doch jetzt waren
drei jahre neue neuen damit bereits da ihr seinen müssen ab ihrer ohne sondern selbst ersten nun
etwa heute ihm weil menschen deutschland anderen rund ihn ende jedoch zeit sollen ins dies einmal
stadt während später weitere weiteren wenige sowie dessen deren dabei dort zunächst gemeinsam
ebenfalls erstmals insgesamt liegt grenzt gehört spielte erhielt wohnt besuchte gewann verlor
starb heiratete wechselte ernannt gewählt gegründet entwickelt erbaut bekannt befindet osten
westen norden süden sitz bevölkerung familie familien einkommen haushalt gemeinde ortsteil verein
karriere saison mannschaft gegner trainer spieler vorsitzender mitglied kandidat kandidatin wahl
partei regierung minister gruppe runde platz album lied film rolle regie werk kirche schule
ausbildung studium anwalt lehrer krieg kaiser könig herzog bruder tochter sohn vater mutter frau
mann kind kinder fluss berg insel wald dorf straße bahnhof strecke rechnung vertrag bestellung
lieferung anfrage termin kunde kündigung sitzung weiterleitung begriffsklärung siehe liste hohe
kleine große alte junge erste zweite dritte letzte
sehr geehrte geehrter damen herren laut gilt punkt betrag summe datum nummer menge preis posten
stück seite anlage betreff grüße passwort zeichen mindestens monatsende
montag dienstag mittwoch donnerstag samstag januar februar märz oktober dezember november heutige
gestern morgen nächste nächsten vielen dank hallo guten tag abend freundliche freundlichen bitte
anbei gern gerne leider hiermit zudem außerdem deshalb daher falls sobald ob warum wieso welche
welcher welches wer unser unsere unserer ihren euer jeder jede jedes vier fünf sechs sieben neun
zehn stunden minuten wochen tage tagen monate euro prozentpunkte angebot auftrag ergebnis ergebnisse
protokoll abnahme umsatz quartal einzelpreis gesamt gesamtpreis mehrwertsteuer kosten gebühr
position teilnehmer tagesordnung aufgabe aufgaben fehler abschnitt kapitel absatz gleis raum etage
rampe kostenstelle buchungskreis sachkonto bestellnummer artikelnummer auftragsnummer
"""
_FRENCH = """
le la les de du un une et en à dans est que qui par pour au aux sur il elle ne pas se ce cette son
sa ses avec plus ou sont mais comme on nous vous ils été était être avoir fait deux trois ans
année années après avant depuis entre sous sans contre vers chez aussi très même tout tous toute
toutes leur leurs où dont si alors ainsi puis encore peu bien premier première second dernière
grand grande petit petite nouveau nouvelle jour temps ville commune département région canton
arrondissement village rivière fleuve montagne île lac forêt gare église château école université
équipe joueur entraîneur match but championnat coupe finale tour groupe chanson rôle livre auteur
acteur peintre reine duc comte évêque ministre président député parti élection guerre bataille
armée loi histoire vie mort naissance fils fille frère sœur père mère femme enfant famille
habitants population espèce genre plante insecte situé située né née morte marié nommé élu fondé
fondée créé publié joué remporté devient commence habite travaille redirection homonymie voir
article facture contrat commande livraison client demande réunion
mot passe doit moins caractères salle suivi numéro montant total référence date prix quantité
bonjour cordialement objet veuillez
lundi mardi mercredi jeudi vendredi samedi dimanche janvier février mars juin juillet août septembre
octobre novembre décembre aujourd hier demain matin soir midi minuit heure heures minutes semaine
semaines mois trimestre semestre quatre cinq six sept huit neuf dix onze douze vingt trente cent
million millions milliard milliards euros merci bonsoir voici voilà vos notre votre mes tes
ces cet aucun aucune chaque plusieurs certains certaines quel quelle quels quelles pourquoi comment
quand lorsque lorsqu afin grâce malgré selon suite ajouter ajoutez ajoute corriger corrigez vider
videz ouvrir ouvrez fermer fermez choisir choisissez cliquez cliquer envoyer envoyez recevoir
vérifier vérifiez mettre mettez prendre prenez passer passez rédiger rédige rédigez écrire écris
écrivez résumer résume résumez traduire traduis traduisez expliquer explique expliquez donner donne
donnez faire fais faites voyez facturation bon devis colis palette quai poste désignation remise
acompte solde taxe somme objectif objectifs action actions décision décisions ordre compte rendu
parfait super désolé sauf hors dès lors peut peuvent doivent sera seront serait soit auront
"""
_SPANISH = """
el los las del y a al una unos unas por con no para su sus lo como más pero fue ha este esta ese
esa cuando muy sin sobre también me hasta hay donde quien desde todo todos nos durante uno ni
contra otros ante ellos e esto antes algunos qué yo otro luego después era eran tiene tenía había
está están sido ser hace año años día dos tres primera primer última nuevo nueva ciudad municipio
provincia distrito departamento pueblo río lago estación estadio iglesia catedral palacio escuela
universidad colegio equipo jugador entrenador partido gol temporada copa torneo campeonato final
grupo canción álbum disco película papel serie novela libro autor actor actriz pintor duque conde
obispo ministro presidente alcalde diputado elecciones guerra batalla ejército ley historia muerte
hijo hija hermano hermana padre madre esposa familia habitantes población especie género planta
nacido nacida casado nombrado elegido fundado fundada publicado grabó ganó perdió cayó jugó vive
trabaja gestiona escuelas públicas mundial selección fútbol organización territorial redirección
anexo véase lista factura contrato pedido entrega cliente reunión
debe tener menos caracteres contraseña número seguimiento importe total referencia fecha precio
cantidad saludos asunto ocho
lunes martes miércoles jueves viernes sábado enero febrero marzo junio agosto septiembre octubre
noviembre diciembre hoy ayer mañana tarde noche hora horas minuto minutos semana semanas meses
cuatro cinco seis siete nueve diez doce veinte treinta cien mil millón millones punto puntos hola
buenos buenas estimado estimada estimados estimadas atentamente cordialmente quedo quedamos adjunto
adjunta favor según cada varios varias ningún ninguna cuál cuáles cuándo cómo dónde porque aunque
mientras así además añade añadir agrega agregar escribe escribir resume resumir traduce traducir
explica explicar genera generar revisa revisar corrige corregir sube subir súbelo baja envía enviar
haz hacer pon poner dejar prueba probar abre abrir cerrar busca buscar llama llamar llámame bolsa
gobierno ventas compra compras envío albarán línea líneas columna columnas tabla tienda almacén
riesgo riesgos cambio cambios objetivo objetivos paso pasos acta asistentes puede pueden podrá
podrán deben será serán
"""
_ITALIAN = """
i gli di della dello dei degli delle nel nella nei che alla ai è per non dal dalla sul sulla come
più ma fu sono questo questa tra fra quando molto senza anche fino dove chi tutto tutti contro
altri prima dopo poi erano aveva stato stata essere anno giorno due tre seconda ultima nuovo nuova
città comune regione frazione paese fiume isola porto stazione stadio chiesa duomo castello
palazzo scuola università squadra giocatore allenatore partita stagione campionato coppa turno
gruppo canzone ruolo romanzo autore attore attrice pittore re duca conte vescovo sindaco deputato
elezioni battaglia esercito legge storia nascita figlio figlia fratello sorella moglie famiglia
abitanti popolazione specie genere pianta nata sposò nominato eletto fondato fondata pubblicato
vinse perse giocò lavora situato situata redirect rinvia disambigua vedi fattura contratto ordine
consegna richiesta appuntamento riunione
codice articolo lotto totale documento spedito gentile caratteri numero importo riferimento data
prezzo quantità saluti oggetto deve
lunedì martedì mercoledì giovedì venerdì sabato gennaio febbraio aprile maggio giugno luglio
settembre ottobre dicembre oggi ieri domani mattina notte ore minuti settimana settimane mese mesi
quattro cinque sette nove dieci undici dodici venti trenta cento milione milioni miliardi ciao
grazie buongiorno buonasera salve gentili spettabile spett cordiali distinti perfetto ottimo va bene
certo ecco infatti inoltre quindi perché mentre quale quali ogni alcuni alcune nessuno nessuna
qualche secondo ci nostro nostra vostra vostro loro aggiungi aggiungere scrivi scrivere spiega
spiegare spiegami traduci tradurre correggi correggere riassumi riassumere prepara preparare
controlla controllare apri aprire chiudi chiudere invia inviare chiedi chiedere passa passare fai
fare metti mettere lessate unite mescolate aggiungete bonifico ferie preventivo magazzino negozio
azione azioni prossimo prossimi prossima prossime passo passi verbale presenti costo costi rischio
rischi obiettivo obiettivi punti fasi può possono devono sarà saranno hanno viene vengono
"""
_DUTCH = """
het een van is dat op te zijn voor met niet aan om ook bij nog uit maar door over hij zij ze hun
haar men naar tot heeft had wordt werd kan kunnen zou meer geen wel of toen tegen onder tussen na
sinds tijdens deze dit zo veel eerste tweede laatste nieuwe grote oude latere eerdere jaar jaren
dag tijd twee drie stad gemeente provincie dorp plaats deelgemeente rivier eiland bos station kerk
kasteel school universiteit ploeg speler wedstrijd doelpunt seizoen competitie beker toernooi
ronde groep rol boek schrijver actrice schilder koning koningin hertog graaf bisschop president
burgemeester partij verkiezing oorlog leger soldaten wet geschiedenis leven dood zoon dochter
broer zus vader moeder vrouw gezin inwoners bevolking soort geslacht taal komt wonen woont werkt
speelt gespeeld gezongen gewonnen verloren geboren overleden getrouwd benoemd gekozen gesticht
gevestigd ligt kwam kwamen uiteindelijk echter prijs eigendom nationaliteit vertaling eveneens
doorverwijzing lijst zie factuur contract bestelling levering klant afspraak vergadering
maandag dinsdag woensdag donderdag vrijdag zaterdag zondag januari februari maart juni december
vandaag gisteren ochtend middag avond uur week weken maand maanden kwartaal vijf zes zeven acht
negen elf twaalf twintig honderd duizend miljoen miljard procent goedemorgen goedemiddag beste
geachte bedankt graag hartelijk vriendelijke groet groeten bijlage hierbij uw wij jullie mijn jouw
welke wat waar waarom hoe elk enkele schrijf schrijven vertaal vertalen leg uitleg maak maken
controleer controleren stuur sturen voeg toe toevoegen sluit meldt zegt aantal bedrag totaal korting
btw regel pagina actiepunten risico doel doelen stap stappen moet moeten mag mogen zal zullen
"""
_POLISH = """
w z do się nie jest to że o od po za dla jak przez był była było były być są oraz jego jej który
która które tym tego także tylko ale przy już może lub czy jako pod nad przed między gdy gdzie
następnie obecnie później podczas roku lat dzień dwa trzy pierwszy pierwsza drugi ostatni nowy
nowa wielki mały miasto miasta mieście gmina gminie powiat powiecie województwo województwie wieś
wsi rzeka rzeki jezioro góra góry wyspa stacja kościół zamek pałac szkoła szkole uniwersytet
uczelnia drużyna drużyny zawodnik trener mecz bramka sezon puchar turniej finał runda rundzie
grupa zespół piosenka rola serial powieść książka aktor aktorka malarz król królowa książę hrabia
biskup prezydent burmistrz poseł partia wybory wojna bitwa armia ustawa życie śmierć syn córka
brat siostra ojciec matka żona mąż dziecko rodzina mieszkańców ludności gatunek rodzaj roślina
urodzony zmarł żonaty wybrany założony położony studiował mieszka pracuje pracę grał wygrał
przegrał rozpoczął tam zwycięstwo kolejnej najlepszy przebywał asystent patrz przekierowanie
faktura umowa zamówienie dostawa klient spotkanie zebranie
"""
_PORTUGUESE = """
os as em nas uma é pelo pela com não seu sua seus mas foi são ao muito sem também até há onde quem
outros depois eram tem tinha ano anos dois três primeiro primeira novo cidade município freguesia
concelho estado aldeia vale ilha estação estádio igreja castelo palácio escola universidade equipa
time jogador treinador jogo taça torneio fase canção filme série romance livro ator atriz rei
rainha bispo prefeito deputado eleições batalha exército história nascimento filho filha irmão
irmã pai mãe família população espécie gênero nascido nascida nomeado eleito venceu perdeu jogou
trabalha localizado localizada redirecionamento ver fatura consulta reunião
terça quarta quinta sexta janeiro fevereiro março maio junho julho setembro outubro novembro
dezembro hoje ontem amanhã manhã noite mês quatro sete oito dez doze vinte trinta cem milhão milhões
bilhões reais olá obrigado obrigada bom boa prezado prezada prezados atenciosamente segue seguem
você vocês nosso nossa nossos nossas vários várias nenhum nenhuma qual quais embora assim além ainda
escreva escrever resuma traduza traduzir adicione adicionar corrija corrigir envie faça fazer abra
feche fechar verifique verificar nota valor pagamento fornecedor empresa empresas pequena pequenas
definição risco riscos passos ata pode podem devem serão foram estão
"""
_RUSSIAN = """
и в во не на с со что он она они как к по но из у за от о об же для это этот эта его её их был
была было были быть есть также только или если когда где который которая которые после до при под
над между через время затем позже сейчас году года год лет день два три первый первая второй
последний новый новая большой малый город города городе район районе область области село деревня
посёлок река реки озеро гора остров лес станция церковь собор замок дворец школа школе университет
институт команда команды игрок тренер матч гол сезон лига кубок турнир финал раунд группа песня
альбом фильм роль сериал роман книга автор актёр актриса художник писатель король королева герцог
граф епископ министр президент мэр депутат партия выборы война битва армия закон история жизнь
смерть сын дочь брат сестра отец мать жена муж ребёнок семья население жителей вид род растение
родился родилась умер умерла женился избран основан расположен находится живёт работает играл
выиграл проиграл учился окончил получил награждён перенаправление список счёт договор заказ
доставка клиент встреча совещание
"""

# What instructions to programs, logs and code are made of.
_TECHNICAL = """
bash shell tail head legacy larger smaller longer shorter tags risks hooks debugging refresh phrases
prs md grep preserve skill skills root echo
abs accordingly add additionally afterwards alpine alternatively always angular ansible any api
append apply applying approvals arg argc argv array asking autonomy avg avoiding await awk
background basically behaviour bind bool boolean briefly buf buffer buffers build building bytes
cache caches caching callable calling carefully cb cfg changelog changing checking chrome chromium
chunk chunks clang cleaning clearly cli clients clusters cmake cmd collect column columns commands
commit committing comparing compile concise config configs configuration consequently constraints
context contexts contributing conventions conversely count create creating css csv ctx currently
cursor cursors cwd datetime debian debug debugging decimal decode deeper default delete deleting
depending deploy deploying detach dev device devices dict direct dispatch django dns dpkg dump
editing egrep either elixir emacs emit encode encoder encoders endpoint endpoints engine engines
ensure env environment equally erf err escape eslint etc ev event eventually examples except
explaining explicitly fd fetcher fetchers filters final finally firefox fixing flask float flush
fn format formatting formerly frontend fs furthermore gcc gdb gemini generally get gid git glob
goals grafana graph graphs grep group groups gzip haiku handle handlers handles handling header
headers hex however ideally idx importantly importing index indexing init input inputs insert
install installation installing instance instances instead io item items iter iterator join
journalctl jq jwt kb kernel kernels kotlin kubectl kubernetes label labels lastly launch layers
leases lhs lib licence likewise limit limits linting linux listing lists load loaders loading log
logging logs longer loops make map mapping mappings match maven maybe mb meanwhile merge merging
message messages metadata method methods metric metrics migrating minimal mistral mocking models
module modules moreover mostly move moving ms mutex mypy namely naming nested next nginx ninja
node nodes normally notably note notes npm npx ns num obj object occasionally oct offset offsets
once only open opt option optional options opus orders os otherwise output outputs overview packet
packets parse parser parsers parsing partial patching path paths pattern patterns perhaps
permissions persistence personality php pid pip planning playwright please plugin plugins pnpm
podman pools pos possibly postgres preamble prefer prefix preserve prettier previously primary
process profiling progress prometheus prompt prompts provided ptr pty publishing put pytest python
queue queues quickly qwen rails rarely react readers rebasing redis refactoring region regions
registry remember removing renaming rendering replacing replica replicas req request requests
requirements reset resolve respond response responses result results retry retrying review
reviewing rg rhs risks rnd role roughly routes rows rpc rsync run rustc safely safety sampling
sandbox scan schema scope scopes scp script scripts sdk searching securing sed segment segments
send sending sequence servers shard shards shift signal signals similarly simply since skills skip
slots snap socket sockets sometimes sonnet sorting source sources spans specifically split sql
sqlite src ssh staging status std steps stop str strace streaming strictly strings strip
subsequent summary support sync sys systemctl table tar target targets task tasks tcp tensor
tensors terraform testing tests thereby therefore thorough thread threads thus timer timers title
titles tls tmp tmux together token tokens tool traces tracing tree tty tuple tuples type types
typically ubuntu udp uid ultimately unknown unless unpack until update updating usage user users
using usize usr usually valgrind validating validation value values var vec vector vectors verbose
verbosity verify version versions views vim void waiting watch webpack wget when whenever whereas
wherever whether window windows within without workers workflow wrap write writers writing xargs
xml yml zsh
hedge hedged hedges hedging pong pings pinged apac emea imei
"""

_LANGUAGES = (
    _GERMAN,
    _FRENCH,
    _SPANISH,
    _ITALIAN,
    _DUTCH,
    _POLISH,
    _PORTUGUESE,
    _RUSSIAN,
)
_OF_LANGUAGES = frozenset(word for words in _LANGUAGES for word in words.split())
_WORDS: Final = _OF_LANGUAGES.union(_TECHNICAL.split())
OF_OTHER_LANGUAGES: Final = _OF_LANGUAGES.union(_BEFORE_SURNAMES.split()) - frozenset(
    """
    a i me no on he do die was an am war so also man will to of men over we is at be as has it by
    but are plus final president in or her dat hat bad not all list fall main star
    """.split()  # noqa: SIM905 - a list literal would fill a screen.
)
_BODIES: Final = frozenset((_ENGLISH_BODIES + _OTHER_BODIES).split())
_PARTICLES: Final = frozenset(_BEFORE_SURNAMES.split())
_WORD: Final = re.compile(r"[^\W\d_]+")
_BEGINS: Final = re.compile(r"(?:^|[.?!:\n])[ \"'(\[*\u00ab\u201c\u201e-]*$")
_BEFORE_LENGTH = 8


def named_part(text: str, start: int, end: int) -> tuple[int, int] | None:
    """The part of a supposed name without the everyday words around it; None if nothing is left."""
    words = [match.span() for match in _WORD.finditer(text, start, end)]
    common = [_is_everyday(text, *word) for word in words]
    if not words or not any(common):
        return start, end
    if all(common):
        return None
    first, last = 0, len(words) - 1
    while common[first] and text[slice(*words[first])].lower() not in _PARTICLES:
        first += 1
    while common[last]:
        last -= 1
    if first > last:
        return None
    return words[first][0] if first else start, words[last][1] if last < len(words) - 1 else end


def is_everyday(word: str) -> bool:
    """Whether it is one of these words, in any spelling of case."""
    return word.lower() in _WORDS


def _is_everyday(text: str, start: int, end: int) -> bool:
    """In lower case, or with the capital that begins a sentence."""
    word = text[start:end]
    lowered = word.lower()
    if lowered in _BODIES:
        return True
    if lowered not in _WORDS:
        return False
    before = text[max(0, start - _BEFORE_LENGTH) : start]
    return word.islower() or _BEGINS.search(before) is not None
