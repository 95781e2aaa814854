"""Words that are said of a password, or stand in code in its place, and are none."""

from __future__ import annotations

_ENGLISH_AND_CODE = """
above accepts again almost already also always another any argument automatic basic bearer below blank bool boolean
both bytes case changed char charfield clear coming common complex complicated compulsory confidential correct data
default different disabled easy either empty enabled enter environ expired expiring explicit false field file fine
flag forgotten from gone good hard hash hashed here hidden hint identical important incorrect input insecure int
integer invalid just known leaked less long lost mandatory masked missing more most must name necessary needed never
next none null number object obsolete okay only open option optional parameter pass passcode passphrase passwd
password passwords passwort pending plain plaintext please present private prompt protected public random read ready
redacted required requires reset right safe same secret secrets secretstr secure sensitive shared short shown
similar simple some stale stdin still stolen stored strength string strong sufficient switch temporary text that
their there this token true type typing undefined unique unknown unsafe unset unused used user username valid value
varchar vault verified very void weak what when where which whatever with without word working write written wrong
your yours
"""
_GERMAN = """
abgelaufen anders auch bekannt bitte dasselbe einfach falsch fehlt geheim gesperrt gleich hier immer kein keine kurz
lang leer neu nicht noch nötig richtig schwach sehr sicher siehe unbekannt unsicher unten vergessen
"""
_FRENCH = """
aucun bonne correcte dans différent faible fausse faux inconnu incorrecte invalide juste même nouveau oublié perdu
sécurisé toujours trop vide voir
"""
_SPANISH_AND_PORTUGUESE = """
claro correcta débil demasiado diferente errada errado forte fraca incorreta incorrecta inválida misma mesma muito
nueva nova nunca perdida secreta segura siempre sempre vacía vazia
"""

SPOKEN = frozenset(" ".join((_ENGLISH_AND_CODE, _GERMAN, _FRENCH, _SPANISH_AND_PORTUGUESE)).split())
