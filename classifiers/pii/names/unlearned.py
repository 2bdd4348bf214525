"""Scripts the tagger has not learned, and the words that support a guess there.

Arabic, Hebrew, Thai, Chinese, Japanese and Korean, and others of Asia. Without capitals and often
without blanks, any run of letters looks like a name to it.
"""

import re
from typing import Final

from classifiers.pii.names.honorifics import is_nobody


_LETTER: Final = re.compile(
    "[\u0590-\u08ff\u0e00-\u0fff\u10a0-\u1cff\u2e80-\ud7ff\uf900-\ufaff\ufb1d-\ufdff\ufe70-\ufefc"
    "\U00020000-\U0003ffff]"
)
_BEFORE: Final = 40
_AFTER: Final = 8
_LONGEST_NAME: Final = 12
_WITHOUT_BLANKS: Final = re.compile("[\u3040-\u30ff\u3400-\u9fff]")


def _words(words: str) -> re.Pattern[str]:
    return re.compile("|".join(word.replace("_", " ") for word in words.split()))


_INTRODUCES: Final = _words(
    """
    السيد الآنسة الأستاذ الدكتور دكتور المهندس الشيخ الأمير الملك الرئيس الوزير المدير الموظف المريض
    العميل الزبون الطالب المحامي القاضي الأخ الأخت عزيزي عزيزتي اسمي الاسم اسمه اسمها باسم يدعى
    المدعو الحضور الحاضرون التوقيع مع_تحيات أطيب_التحيات _بن_ _بنت_ آقای خانم جناب نام
    מר_ גברת גב' ד"ר פרופ' שמי השם בשם הלקוח המטופל העובד בברכה
    คุณ นาย นาง ชื่อ ดร.
    氏名 名前 担当 出席者 参加者 患者 お客様 作成者 署名 社員 申します
    姓名 名字 我叫 我是 参会 参加人 出席 与会 客户 患者 病人 负责人 联系人 收件人
    经理 主任 老师 同事 员工
    이름 성명 담당 참석자 고객 환자 대표 저는 직원 작성자
    """
)
_ADDRESSES: Final = re.compile(
    "さん|さま|様|氏|くん|君|ちゃん|先生|社長|部長|女士|小姐|老师|经理|님|씨|선생"
)
_PLACES: Final = _words(
    """
    العنوان عنوان شارع طريق حي_ مبنى يسكن يقيم سكن منزل خیابان آدرس כתובת רחוב ที่อยู่ ถนน
    住所 所在地 届け先 送り先 宛先 丁目 番地 〒 在住 住んで
    地址 住址 收货 住在 街道 小区 号楼 주소 거주 배송지 번지 도로명
    """
)
_BIRTHS: Final = _words(
    "ميلاد مولود ولد תאריך_לידה נולד เกิด 生まれ 生年月日 誕生 出生 生日 생년월일 출생 태어"
)


def is_unlearned(text: str) -> bool:
    """Whether a letter of such a script occurs."""
    return _LETTER.search(text) is not None


def speaks_for_unlearned(text: str, label: str, start: int, end: int) -> bool:
    """Whether a word speaks for a guess among letters of such a script."""
    said = text[start:end]
    before, after = text[max(0, start - _BEFORE) : start], text[end : end + _AFTER]
    if label == "PERSON":
        if not is_unlearned(said):
            return True
        if len(said) > _LONGEST_NAME and _WITHOUT_BLANKS.search(said) is not None:
            return False
        if is_nobody(said):
            return False
        introduced = _INTRODUCES.search(before + said) is not None
        return introduced or _ADDRESSES.search(said + after) is not None
    if label == "ADDRESS":
        return _PLACES.search(before + said) is not None
    if label == "DOB":
        return _BIRTHS.search(before + said + after) is not None
    return any(map(str.isdigit, said)) or not is_unlearned(said)
