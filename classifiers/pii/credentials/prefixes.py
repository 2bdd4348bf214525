"""Credentials with a prefix of their own: the prefix, and the format of what follows it.

RE2 would unroll every bounded repetition here, which takes a quarter of a second; so RE2 looks for
the prefixes alone, and where one stands Python's `re` reads on. Each pattern reads a bounded number
of characters, and none can go back over more than it has read.
"""

import re
from typing import Final


# Head, blank, rest. The last forty are formats that vendors document, most of the last few years.
_FORMATS: Final = r"""
gh[pousr]_ [A-Za-z0-9]{30,80}
github_pat_ [A-Za-z0-9_]{40,100}
gl[a-z]{2,8}- [A-Za-z0-9_\-.=]{18,90}
GR1348941 [A-Za-z0-9_\-]{18,40}
gw_(?:live|test)_ [A-Za-z0-9_\-]{12,120}
xox[a-z](?:\.xox[a-z])?- [A-Za-z0-9\-]{10,250}
xapp-[0-9]- [A-Za-z0-9\-]{10,150}
[srpw]k_(?:live|test|prod)_ [A-Za-z0-9]{10,120}
whsec_ [A-Za-z0-9+/=]{20,80}
sk- [A-Za-z0-9_\-]{20,200}
AIza [A-Za-z0-9_\-]{32,40}
GOCSPX- [A-Za-z0-9_\-]{20,40}
ya29\. [A-Za-z0-9_\-]{20,200}
(?:AKIA|ASIA|ABIA|ACCA|AROA|AIDA|AGPA) [A-Z0-9]{16}
ABSK [A-Za-z0-9+/]{60,200}={0,2}
bedrock-api-key- [A-Za-z0-9+/=]{16,200}
LTAI [A-Za-z0-9]{16,24}
[A-Za-z0-9_~.]{3}8Q~ [A-Za-z0-9_~.\-]{31,34}
hf_ [A-Za-z0-9]{30,40}
api_org_ [A-Za-z0-9]{30,40}
npm_ [A-Za-z0-9]{30,40}
pypi- [A-Za-z0-9_\-]{50,200}
do[opr]_v1_ [a-f0-9]{60,64}
SG\. [A-Za-z0-9_\-.=]{40,70}
shp(?:at|ca|pa|ss)_ [A-Fa-f0-9]{32}
lin_api_ [A-Za-z0-9]{40}
hv[sb]\. [A-Za-z0-9_\-]{24,200}
gl(?:c|sa)_ [A-Za-z0-9+/_]{20,200}={0,3}
dapi [a-f0-9]{32}(?:-[0-9])?
pul- [a-f0-9]{40}
PMAK- [a-f0-9\-]{50,60}
NR(?:AK|II|JS|RA)- [A-Za-z0-9\-]{15,40}
EZ[AT]K [A-Za-z0-9]{40,60}
dp\.(?:pt|st|ct|sa|scim|audit)\. [A-Za-z0-9.]{30,60}
pscale_(?:tkn|pw|oauth)_ [A-Za-z0-9=._\-]{20,70}
SK [0-9a-fA-F]{32}
(?:pub)?key- [a-f0-9]{32}
dckr_pat_ [A-Za-z0-9_\-]{20,40}
figd_ [A-Za-z0-9_\-]{30,60}
sha256~ [A-Za-z0-9_\-]{40,50}
FLWSECK_TEST- [A-Za-z0-9\-]{10,40}
ico- [A-Za-z0-9]{30,34}
CLOJARS_ [A-Za-z0-9]{50,64}
p8e- [A-Za-z0-9]{30,34}
pat\. [A-Za-z0-9_\-]{20,24}\.[A-Za-z0-9.]{20,60}
sntr[yu]s_ [A-Za-z0-9_=+/]{40,200}
tfp_ [A-Za-z0-9_\-.=]{40,70}
sq0[a-z]{3}- [A-Za-z0-9_\-]{20,60}
dnkey- [A-Za-z0-9=_\-]{40,100}
(?:fo1|fm[12][ar]?)_ [A-Za-z0-9+/_]{30,300}
access-(?:sandbox|development|production)- [a-f0-9\-]{36}
AT[AC]TT3 [A-Za-z0-9_\-=]{30,250}
ATBB [A-Za-z0-9]{24,40}
AKC [A-Za-z0-9]{20,80}
EAA [A-Za-z0-9]{20,250}
pplx- [A-Za-z0-9]{30,60}
xkeysib- [a-f0-9]{40,70}-[A-Za-z0-9]{10,20}
rdme_ [a-z0-9]{40,80}
rubygems_ [a-f0-9]{40,60}
ntn_ [A-Za-z0-9]{30,60}
secret_ [A-Za-z0-9]{43}
pnu_ [A-Za-z0-9]{30,40}
HRKU- [A-Za-z0-9_\-]{30,70}
shippo_(?:live|test)_ [a-f0-9]{40}
duffel_(?:live|test)_ [A-Za-z0-9_\-=]{30,50}
fio-u- [A-Za-z0-9_\-=]{40,80}
dt0[a-z][0-9]{2}\. [A-Za-z0-9]{20,30}\.[A-Za-z0-9]{50,80}
AGE-SECRET-KEY-1 [A-Z0-9]{50,64}
A3-[A-Z0-9]{6}- (?:[A-Z0-9]{5,11}-?){3,6}
ops_eyJ [A-Za-z0-9+/=]{40,400}
sgp_ (?:[a-f0-9]{16}_|local_)?[a-f0-9]{40}
sq[uap]_ [a-f0-9]{40}
tk-us- [A-Za-z0-9_\-]{40,60}
s-s4t2(?:ud|af)- [a-f0-9]{60,70}
FLWPUBK_TEST- [A-Za-z0-9\-]{10,40}
API- [A-Z0-9]{24,30}
oy2 [a-z0-9]{43}
[sp]k\.eyJ [A-Za-z0-9_\-]{40,200}\.[A-Za-z0-9_\-]{20,30}
v1\.0- [a-f0-9]{24}-[a-f0-9]{100,160}
[A-Za-z0-9]{14}\.atlasv1\. [A-Za-z0-9_\-=]{40,80}
CFPAT- [A-Za-z0-9_\-]{40,50}
lin_oauth_ [A-Za-z0-9]{30,70}
pat-(?:na|eu)[0-9]- [a-f0-9\-]{36}
sb[pst]_ [A-Za-z0-9_\-]{30,60}
r8_ [A-Za-z0-9]{30,45}
gsk_ [A-Za-z0-9]{40,60}
xai- [A-Za-z0-9]{60,90}
nvapi- [A-Za-z0-9_\-]{50,80}
tvly- [A-Za-z0-9\-]{25,50}
AQVN [A-Za-z0-9_\-]{30,45}
t1\. [A-Z0-9a-z_\-]{5,200}[=]{0,2}\.[A-Z0-9a-z_\-]{80,90}={0,2}
sl\. [A-Za-z0-9_\-]{120,160}
sm_[a-z]at_ [A-Za-z0-9]{16,40}
[0-9]{8,10}:AA [A-Za-z0-9_\-]{32,36}
[a-f0-9]{32}-us [0-9]{1,2}
AC [a-f0-9]{32}
[MNO][A-Za-z0-9_\-]{23,27}\.[A-Za-z0-9_\-]{6}\. [A-Za-z0-9_\-]{27,40}
[0-9]{15,25}- [A-Za-z0-9]{20,45}
1//0 [A-Za-z0-9_\-]{40,120}
(?:live|test)_(?:pub_)? [a-f0-9]{31,35}
eyJrIjoi [A-Za-z0-9+/=]{60,400}
""".split()  # noqa: SIM905 - a list literal would hide the pairs.
_FIRST_CHARACTER: Final = re.compile(r"\[[^\]]+\]")
_PAIRS: Final = tuple(zip(_FORMATS[::2], _FORMATS[1::2], strict=True))


def _head(head: str, rest: str) -> str:
    first = _FIRST_CHARACTER.match(rest)
    return head + first[0] if first is not None else head


HEADS: Final = "(?:" + "|".join(_head(head, rest) for head, rest in _PAIRS) + ")"
"""Matches where a credential may begin."""
WHOLE: Final = "|".join(head + rest for head, rest in _PAIRS)
"""A complete credential, from its head on."""
