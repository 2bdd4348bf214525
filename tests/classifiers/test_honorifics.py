"""Names with a title or a label in Japanese, Chinese, Korean and Arabic; nobody without one."""

import pytest

from classifiers.pii.names.honorifics import named
from classifiers.pii.scanner import PATTERNS_ONLY, Scanner, load


SOMEBODY = (
    "«田中»様", "«田中太郎»様、お世話になっております。", "«佐藤»さんに連絡してください",
    "本日は«山本»先生が来ます", "«鈴木»部長にご確認ください", "氏名: «鈴木一郎»",
    "氏名：«佐々木 健太»\n電話", "お名前：«高橋みなみ»", "担当：«小林»", "担当者: «中村»（営業）",
    "患者：«渡辺 直美»", "明日«伊藤»さまが到着", "作成者：«山田花子»", "氏名：«長谷川 翔»",
    "氏名：«マリア・ロペス»", "名前：«黒木 芽衣»", "昨日、«林さん»と話した", "«高木»弁護士に相談",
    "«清水»くんの席", "姓名：«王小明»", "姓名: «欧阳修»", "联系人：«李雷»，电话", "«王先生»您好",
    "«张女士»已到", "请联系«张伟»经理", "收件人：«陈晓红»", "«李老师»说", "客户：«赵铁柱»",
    "请«周杰»先生签字", "尊敬的«刘洋»女士：", "负责人：«孙丽»", "患者姓名：«徐静»",
    "«林太太»的快递", "聯絡人：«陳美玲»", "請問«黃先生»在嗎", "«吴医生»今天休息",
    "«김민수»님 안녕하세요", "성명: «박지영»", "이름: «최수진»", "«이영희» 씨에게 전화하세요",
    "«박 부장님»께 보고", "담당자: «정다은»", "고객명: «홍길동»", "어제 «강하늘» 씨가 왔다",
    "참석자: «윤서연», 외 3명", "«최과장님»이 결재", "성명: «허준»", "السيد «محمد أحمد»",
    "السيدة «فاطمة الزهراء»", "الاسم: «خالد بن سعيد»", "الدكتور «يوسف إبراهيم» هنا",
    "المريض: «عمر حسن»", "اسمي «سارة علي» وأعمل هنا", "العميل: «أحمد القحطاني»",
    "الأستاذة «ليلى منصور»",
)  # fmt: skip
NOBODY = (
    "お客様のご要望", "皆様へ", "皆さんこんにちは", "おじいさんとおばあさん", "お母さんの日",
    "社長に報告する", "先生の授業を受ける", "王様の冒険", "神様に祈る", "奥さんは留守",
    "担当者様各位", "お疲れ様です", "様々な種類", "仕様書を確認", "花の模様", "同様に処理",
    "山の上の様子", "氏名：入力必須", "担当：未定", "名前：任意", "氏名を入力してください",
    "東京都の人口", "中島みたいな島", "本田んぼ", "店長を募集", "君主の時代", "高級酒店",
    "许多先生女士", "女士们先生们", "这位先生", "老师好", "项目经理负责", "高级经理职位",
    "任何老师都可以", "班主任通知", "姓名：必填", "联系人：无", "客户：高级会员", "马上联系经理",
    "周末老师休息", "等于先生产后付款", "金融经理培训", "负责人：待定", "有关主任的规定",
    "顾问先生", "白天老师在", "申请人：", "黄金教授法", "고객님께 알려드립니다",
    "선생님 감사합니다", "여러분 안녕", "부장님 회의", "씨앗을 심다", "날씨가 좋다", "이름: 필수",
    "담당자: 미정", "이용자님께", "조합원님 여러분", "손님이 왔다", "주인님의 집",
    "이 선생님은 누구", "성명: 미기재", "전문가 씨름", "이름: 이메일과 같음", "السيد المدير العام",
    "السادة العملاء الكرام", "الاسم: مطلوب", "الدكتور المختص", "المريض يحتاج إلى راحة",
    "أحمد الله على ذلك", "حسن الاستخدام", "نور الشمس", "العميل الجديد", "جمال الطبيعة",
    "الأستاذ الجامعي",
)  # fmt: skip


@pytest.fixture(scope="module")
def scanner() -> Scanner:
    return load()


@pytest.mark.parametrize("said", SOMEBODY)
def test_a_name_with_a_title_or_a_label_is_found(said: str, scanner: Scanner) -> None:
    start, end = said.index("«"), said.index("»") - 1
    text = said.replace("«", "").replace("»", "")
    for each in (scanner, PATTERNS_ONLY):
        found = [(f.start, f.end) for f in each.scan(text).findings if f.label == "PERSON"]
        assert found == [(start, end)]


@pytest.mark.parametrize("text", NOBODY)
def test_words_that_end_or_begin_alike_are_nobody(text: str) -> None:
    assert not list(named(text))


@pytest.mark.parametrize(
    "text", ["皆さん", "おじいさんの話", "患者さんの声", "고객님", "入力してください"]
)
def test_what_everybody_is_called_is_nobody_to_the_tagger(text: str, scanner: Scanner) -> None:
    assert not [f for f in scanner.scan(f"氏名：{text}").findings if f.label == "PERSON"]
