"""Finds names in Japanese, Chinese, Korean and Arabic by the title or label beside them.

The tagger has learned nothing of these scripts. Without capitals and mostly without blanks, a name
can only be recognised by the words around it and by how names begin: with one of the most common
surnames or, in Arabic, with a first name. Rare names are not found.
"""

# ruff: noqa: RUF001 - the words and marks of other scripts are what this is about.

import re
from collections.abc import Iterator
from typing import Final

from classifiers.pii.findings import Finding


_SCORE: Final = 0.75
_NAME: Final = "honorific"
_HAN: Final = "[\u3005\u4e00-\u9fff]"
_JAPANESE: Final = """
    佐藤 鈴木 高橋 髙橋 田中 伊藤 渡辺 渡邊 渡邉 山本 中村 小林 加藤 吉田 山田 佐々木 山口 松本
    井上 木村 斎藤 斉藤
    齋藤 清水 山崎 山﨑 阿部 池田 橋本 石川 山下 中島 石井 小川 前田 岡田 長谷川 藤田 後藤 近藤
    村上 遠藤 青木 坂本
    福田 太田 西村 藤井 岡本 藤原 三浦 金子 中野 中川 原田 松田 竹内 小野 田村 中山 和田 石田 森田
    上田 柴田 酒井
    宮崎 横山 高木 安藤 宮本 大野 小島 谷口 今井 工藤 高田 増田 丸山 杉山 村田 大塚 新井 小山 平野
    藤本 河野 上野
    野口 武田 松井 千葉 岩崎 菅原 木下 久保 佐野 野村 松尾 市川 菊地 菊池 古川 島田 水野 桜井 高野
    吉川 山内 西田
    西川 北村 五十嵐 安田 中田 川口 平田 川崎 飯田 東 本田 久保田 沢田 辻 関 川村 吉村 岩田 中西
    服部 福島 樋口
    川上 永井 松岡 田口 山中 森本 矢野 秋山 大島 小松 広瀬 土屋 馬場 石原 熊谷 大久保 片山 荒木
    川田 尾崎 松浦 大西
    内田 松下 星野 荒井 内藤 児玉 望月 早川 須藤 岩本 大橋 黒田 堀 堀内 三宅 浅野 白石 小西 柳田
    栗原 伊東 大谷
    林 森 原 南 西 畑 泉
    """.split()  # noqa: SIM905 - a list literal would fill a screen.
_ONE_SIGN: Final = frozenset("東辻関堀林森原南西畑泉")
_NOT_AFTER_ONE: Final = ("君", "殿", "長", "専務", "常務", "くん", "ちゃん")
_CHINESE: Final = (
    "王李张張刘劉陈陳杨楊赵趙吴吳周徐孙孫朱胡郭林罗羅郑鄭梁谢謝宋唐邓鄧冯馮韩韓曹曾彭萧蕭蔡潘田"
    "董袁余叶葉蒋蔣杜苏蘇"
    "魏吕呂丁沈姚卢盧姜崔钟鍾谭譚陆陸汪廖贾賈韦韋邹鄒熊孟秦阎閻薛侯雷龙龍黄黃何马馬高许許贺賀顾"
    "顧毛郝龚龔邵严嚴覃武"
    "戴莫孔汤湯尹黎易乔喬赖賴庞龐樊兰蘭殷施陶洪翟颜顏倪俞柳"
)
_TWO_SIGNS: Final = (
    "欧阳|歐陽|司马|司馬|诸葛|諸葛|上官|夏侯|东方|東方|皇甫|尉迟|慕容|司徒|令狐|端木"
)
_KOREAN: Final = (
    "김이박최정강조윤장임한오서신권황안송류전홍고문양손배백허유남심노하곽성차주우구민진지엄채원"
    "천방공현함변염여추도소석선설마길연위표명기반왕금옥육인맹제모"
)
_KOREAN_USUAL: Final = "김이박최정강조윤장임한오서신권황안송류전홍고문양손배백허유남심노"
_ARABIC: Final = """
    محمد أحمد احمد علي حسن حسين محمود مصطفى إبراهيم ابراهيم يوسف عمر خالد سعيد عبدالله عبدالرحمن
    عبدالعزيز فهد سعود
    سلطان فيصل ناصر سالم راشد حمد جاسم طارق كريم سامي وليد ياسر هشام أشرف عماد رامي زياد باسم بلال
    أنس حمزة إسماعيل
    اسماعيل يحيى زكريا موسى عيسى داود سليمان صالح جمال كمال جلال نبيل رشيد منصور ماجد مازن مروان
    نادر هاني أيمن شريف
    فاطمة عائشة خديجة مريم زينب سارة ليلى نور هدى منى سلمى أمل إيمان ريم رنا دينا هند سعاد نادية
    سميرة كريمة لطيفة
    نورة منيرة حصة شيماء أسماء رقية هالة غادة لينا ياسمين جميلة وفاء سناء رانيا
    """.split()  # noqa: SIM905 - as above.
_NOT_HAN: Final = rf"(?:(?<!{_HAN})|(?<=[昨明本]日|担当|営業|部長|課長|係の))"
_ENDS: Final = r"(?=[\s、。，,；;:：)）」』】(（/|0-9A-Za-z]|$)"
_KANA_NAMES: Final = r"[ァ-ヴー]{2,10}[・ 　][ァ-ヴー]{2,12}"
_JA_SURNAMES: Final = "|".join(sorted(_JAPANESE, key=len, reverse=True))
_JA_TITLES: Final = (
    "様|さま|さん|氏(?!名)|殿(?!堂)|先生|君(?!主)|くん|ちゃん|部長|課長|係長|社長|専務|常務"
    "|店長|教授|医師|弁護士|看護師"
)
_JA_LABELS: Final = (
    "(?:氏名|お?名前|ご?担当者?|患者名?|申込者|申請者|代表者|署名|作成者|受取人|宛名|参加者"
    "|出席者|お客様名|顧客名|フルネーム)"
)
_ZH_LABELS: Final = (
    "(?:姓名|名字|联系人|聯絡人|收件人|寄件人|客户|客戶|患者|病人|负责人|負責人|经办人|申请人"
    "|申請人|签名|員工|员工|学生|學生|投保人|甲方|乙方)"
)
_ZH_NAME: Final = rf"(?:(?:{_TWO_SIGNS}){_HAN}{{1,2}}|[{_CHINESE}]{_HAN}{{1,2}})"
_ZH_NO_NAMES: Final = (
    "许多|許多|高级|高級|高龄|高管|马上|馬上|周末|周年|周围|曾经|曾經|何种|何位|余下|林业|田间"
    "|陆续|陸續|陆军|严重|严格"
    "|施工|龙头|黄金|武装|武术|毛利|洪水|易懂|顾问|顧問|顾客|顧客|贺电|莫名|高中|高层|杜绝"
    "|叶子|钟表|陶瓷|黎明|金牌"
)
_ZH_BEFORE: Final = rf"(?:(?<!{_HAN})|(?<=[请請找给給和与與问問由对對跟叫让讓向系絡是为為的位]))"
_KO_LABELS: Final = (
    r"(?:성명|이름|담당자?|고객명|환자명?|참석자|작성자|대표자|수령인|신청자|받는 ?분|보호자)"
)
_KO_TITLES: Final = (
    "부장|과장|대리|사장|이사|교수|선생|팀장|차장|원장|대표|실장|변호사|의사|간호사|기자"
)
_KO_NO_NAMES: Final = (
    "이용자|조합원|신청자|정회원|임직원|구독자|주최자|전문가|이메일|주민번|전화번|주소지"
    "|이벤트|이름은|성함은|고객사"
    "|이사장|조교수|정교수|서비스|고등학|고객센|지원자|진행자|연구원|공무원|소비자|구매자"
    "|여행자|도우미|안내원|전달사|한국인"
)
_AR_TITLES: Final = (
    "السيدة?|الآنسة|الأستاذة?|الاستاذة?|الدكتورة?|المهندسة?|الشيخة?|المحامية?|الأخت?|د\\.|م\\.|أ\\."
)
_AR_LABELS: Final = (
    "الاسم(?: الكامل)?|اسمي|اسمه|اسمها|اسم (?:المريض|العميل|الموظف|الطالب)|المريضة?|العميلة?"
    "|الموظفة?|التوقيع|المدعوة?"
)
_AR_FIRST: Final = "|".join(sorted(_ARABIC, key=len, reverse=True))
_AR_LETTER: Final = "[\u0621-\u064a]"
_AR_NAME: Final = (
    rf"(?:(?:{_AR_FIRST})|عبد ال{_AR_LETTER}{{2,8}}|أبو {_AR_LETTER}{{2,10}})(?!{_AR_LETTER})"
    rf"(?: (?:بن|ابن|بنت|آل|أبو) {_AR_LETTER}{{2,12}}| (?:{_AR_FIRST})(?!{_AR_LETTER})"
    rf"| ال{_AR_LETTER}{{2,12}}(?!{_AR_LETTER}))"
    "{0,3}"
)
_JA_GIVEN: Final = "[\u3005\u4e00-\u9fffぁ-んァ-ヴー]{1,4}"
_TOLD: Final = "[ 　]?[:：][ 　]{0,3}"
_ZH_SURNAME: Final = f"(?!{_ZH_NO_NAMES})(?:{_TWO_SIGNS}|[{_CHINESE}])"
_ZH_WHOLE: Final = f"(?!{_ZH_NO_NAMES}){_ZH_NAME}"
_ZH_POSTS: Final = "老师|老師|经理|經理|主任|医生|醫生|教授|律师|律師"
_KO_WHOLE: Final = f"(?!{_KO_NO_NAMES})[{_KOREAN}][가-힣]{{2}}"
_KO_NOT: Final = "(?<![가-힣])"
_JAPANESE_RULES: Final = (
    f"{_NOT_HAN}((?:{_JA_SURNAMES}){_HAN}{{0,3}}?)(?:{_JA_TITLES})",
    f"{_JA_LABELS}{_TOLD}((?:{_JA_SURNAMES})(?:[ 　]?{_JA_GIVEN}?)?){_ENDS}",
    f"(?:氏名|名前|フルネーム){_TOLD}({_HAN}{{1,3}}[ 　]{_JA_GIVEN}|{_KANA_NAMES}){_ENDS}",
)
_CHINESE_RULES: Final = (
    f"{_ZH_BEFORE}({_ZH_WHOLE}|{_ZH_SURNAME})(?:先生|女士|小姐|太太)(?![们們])",
    f"{_ZH_BEFORE}({_ZH_SURNAME})(?:{_ZH_POSTS}|总(?=[，。,、：: ]|$))",
    f"(?<=联系|聯絡|通知|请问|請問)({_ZH_WHOLE})(?:{_ZH_POSTS})",
    f"{_ZH_LABELS}(?:姓名)?{_TOLD}({_ZH_WHOLE}){_ENDS}",
)
_KOREAN_RULES: Final = (
    f"{_KO_NOT}({_KO_WHOLE}) ?(?:님|씨)(?![가-힣](?<![에은의이과도를께가]))",
    f"{_KO_NOT}([{_KOREAN_USUAL}]) ?(?:{_KO_TITLES})님",
    f"{_KO_LABELS}{_TOLD}({_KO_WHOLE})(?![가-힣])",
    f"성명{_TOLD}((?!{_KO_NO_NAMES})[{_KOREAN_USUAL}][가-힣])(?![가-힣])",
)
_ARABIC_RULES: Final = (
    rf"(?<!{_AR_LETTER})(?:{_AR_TITLES})[ /]{{0,3}}({_AR_NAME})",
    rf"(?<!{_AR_LETTER})(?:{_AR_LABELS})\s{{0,2}}[:：]?\s{{0,3}}({_AR_NAME})",
)
_RULES: Final = tuple(
    (re.compile(f"[{letters}]"), tuple(re.compile(rule, re.MULTILINE) for rule in rules))
    for letters, rules in (
        ("\u4e00-\u9fff", (*_JAPANESE_RULES, *_CHINESE_RULES)),
        ("가-힣", _KOREAN_RULES),
        ("\u0621-\u064a", _ARABIC_RULES),
    )
)
_THIS: Final = frozenset("이한전조주정")
"""Surnames that are also a word if a blank follows: "this teacher"."""
_NOBODY: Final = re.compile(
    r"皆|みな|お?(?:じい|ばあ|母|父|兄|姉|客|医者|子)|奥|患者|ご?担当者?|神|仏|王|姫|殿|各位"
    r"|[昨今明本]日|고객|선생|사장|손|부모|여러|.{0,12}(?:ください|下さい)"
)


def named(text: str) -> Iterator[Finding]:
    """The persons in a text that have a title or a label."""
    if text.isascii():
        return
    for letters, rules in _RULES:
        if letters.search(text) is None:
            continue
        for match in (match for rule in rules for match in rule.finditer(text)):
            start, end = match.span(1)
            said = text[start:end]
            if said in _THIS and text[end] == " ":
                continue
            if said in _ONE_SIGN and match[0].endswith(_NOT_AFTER_ONE):
                continue
            # A surname of one sign alone is that sign anywhere else; with its title it is not.
            yield Finding(start, end if end - start > 1 else match.end(), "PERSON", _SCORE, _NAME)


def is_nobody(said: str) -> bool:
    """Whether it is a word for anybody: "everyone", "the customer", "grandfather"."""
    return _NOBODY.match(said) is not None
