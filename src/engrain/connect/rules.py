"""Decide by rules what a coding session leaves behind: standing rules, wishes, decisions, corrections, causes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from engrain.connect.commands import is_work
from engrain.core.rules.frames import HIDDEN_LETTER
from engrain.core.rules.own_words import find_own_words
from engrain.core.secrets.personal import contains_secret
from engrain.core.text.passages import Sentence, split_sentences
from engrain.ingest.gate import find_statements

Kind = Literal["rule", "wish", "decision", "correction", "fix", "command", "file", "cause"]
PERSONAL: tuple[Kind, ...] = ("wish",)
MAX_KEPT_CHARACTERS = 400
MAX_READ_CHARACTERS = 6_000
MAX_CODE_WORDS = 6
MAX_MENTIONED_WORDS = 2  # quoted words that are a name, not a quotation

_PRIVATE = re.compile(r"<private>.*?(?:</private>|\Z)", re.DOTALL | re.IGNORECASE)
_QUOTED = re.compile(rf"{HIDDEN_LETTER}+")


_STANDING = re.compile(
    r"\b(?:always|never|every ?time|each time|whenever|from (?:now|here) on|in general|generally|everywhere"
    r"|in (?:the )?"
    r"future|going forward|by default|as a rule|anymore|any more|at all times|ever\b(?=[.! ]*$)|without exception"
    r"|until i say|without asking|unless i (?:say|ask)|no exceptions|keep in mind"
    r"|immer|niemals|nie|ab jetzt|ab sofort|von jetzt an|künftig|in zukunft|grundsätzlich|überall|jedes mal|generell"
    r"|siempre|nunca|jamás|a partir de ahora|de ahora en adelante|en general|cada vez|por defecto"
    r"|toujours|jamais|désormais|dorénavant|à partir de maintenant|en général|à chaque fois|partout|par défaut)\b",
    re.IGNORECASE,
)
_ONCE = re.compile(
    r"\b(?:just (?:for )?(?:this|now|once|today)|for now|for the moment|this (?:once|time|one)|only this|(?:for|in"
    r"|on) this"
    r" (?:change|pr|commit|branch|run|ticket|task)|today|tonight|right now|temporarily|yet|for a (?:sec|second|minute)"
    r"|erstmal|vorerst|diesmal|heute|gerade|nur dieses|noch nicht|por ahora|esta vez|hoy|de momento"
    r"|pour l'instant|cette fois|aujourd'hui|pas encore)\b",
    re.IGNORECASE,
)
_QUESTION = re.compile(
    r"\s*(?:(?:ok(?:ay)?|so|and|but|hey|hm+|also)[, ]+)?(?:can|could|would|should|will|do|does|did|is|are|was|were|has"
    r"|have|why|what|what's|how|where|when|which|who|whose|any (?:idea|chance|way)|wie|was|warum|wieso|wo|wann"
    r"|welche\w*"
    r"|kannst|könntest|soll|sollen|gibt es|puedes|podrías|por qué|qué|cómo|dónde|cuál|peux|pouvez|pourquoi|comment"
    r"|est-ce|qu'est|quel\w*)\b",
    re.IGNORECASE,
)
_STANDING_REQUEST = re.compile(
    r"\s*(?:can|could|would|will) you (?:please )?(?:always|never|stop|from now on)\b", re.IGNORECASE
)
_UNSURE = re.compile(
    r"\b(?:if we (?:ever|were|went|had)|what if|maybe|perhaps|might|wonder(?:ing)?|not sure|i think we could|could we"
    r"|should we|suppose|imagine|hypothetical\w*|thinking (?:about|of)|leaning|tempted|one day|eventually|someday|lol"
    r"|haha|vielleicht|eventuell|womöglich|quizás?|tal vez|a lo mejor|peut-être|on pourrait|could be|may be)\b",
    re.IGNORECASE,
)
_REPORTED = re.compile(
    r"\b(?:they|he|she|the (?:docs?|readme|article|blog|post|book|linter|log|output|error|ticket|customer|client"
    r"|user|page"
    r"|guide|spec|rfc|vendor)|someone|somebody|people|stack ?overflow|chatgpt|copilot) (?:say|says|said|told"
    r"|claims?|wrote"
    r"|writes|thinks?|recommends?|suggests?|complains?|wants?)\b|\baccording to\b|\b(?:user|bug|customer) report\b"
    r"|\b(?:another|other|their) (?:team|project|repo|company)\b|\bpasted from\b",
    re.IGNORECASE,
)
_REFUSAL = re.compile(
    r"\s*(?:(?:eh|uh|um|hm+|oh|ugh|hey|sorry|please)[, ]+)*(?P<cue>no+pe|nah|no+|not like (?:that|this)|not that"
    r"|wrong\b[^,.:;!]*"
    r"|incorrect|stop|don't|do not|actually|wait|that(?:'s| is|s) (?:the )?(?:not|wrong|old|outdated|deprecated"
    r"|incorrect|no"
    r" longer)[^,.:;!]*|you(?:'re| are) (?:wrong|using the wrong|mixing)[^,.:;!]*|you keep|again|nein|falsch"
    r"|nicht so|stopp"
    r"|hör auf|doch nicht|mal|incorrecto|así no|deja de|non|faux|arrête|pas comme ça)"
    r"(?=[\s,.:;!–-]|$)[\s,.:;!–-]*",
    re.IGNORECASE,
)
_CONTENT = re.compile(
    r"\b(?:use|using|uses|used|live|lives|is|are|it's|we|we're|our|must|should|need|needs|belongs?|goes|go|only"
    r"|instead|not"
    r"|never|always|nimm|benutze|verwende|nutze|wir|ist|sind|usa|usamos|es|son|utilise|on|c'est|put|keep|run|call"
    r"|name|write)\b",
    re.IGNORECASE,
)
_PROHIBITION = re.compile(
    r"\s*(?:please |bitte |and |also |but )*(?:don't|do not|never|must not|mustn't|you must(?: not)?"
    r"|no (?:more )?\w+ing\b"
    r"|avoid|refrain|nie|niemals|nunca|no (?:uses|toques|hagas)|ne (?:touche|fais|utilise)[sz]? (?:pas|jamais))\b",
    re.IGNORECASE,
)
_DECISION = re.compile(
    r"\b(?:decided|decision|we agreed|agreed (?:on|to)|settled on|settled|discussion closed|it's final"
    r"|final (?:call|answer"
    r"|decision)|verdict|let's (?:go|stick|stay) (?:with|for|on)|let's (?:use|drop|keep|adopt|standardi[sz]e"
    r"|switch to|move"
    r" to|not (?:use|do))|(?:i'm |we're |we are |i am )?going with|we(?:'ll| will|'re going to"
    r"| are going to) (?:use|keep|stick|stay"
    r"|go with|drop|switch|move|adopt|support|ship|not|stop|no longer|only|have|do|build|write|put|store|host)"
    r"|we (?:picked|chose|choose|drop|dropped|switch|switched|moved|migrated|standardi[sz]ed|ditched|rejected|keep"
    r"|stay with)"
    r"|we're (?:dropping|switching|moving|sticking|staying|keeping|ditching|migrating|standardi[sz]ing)|(?:is|are"
    r"|it's|goes) (?:out"
    r"|dead|gone|in|off the table|dropped|rejected|cancelled)(?=[\s,.;!]|$)|in favou?r of|no (?:longer"
    r"|more) (?:support|use)"
    r"|wir (?:nehmen|bleiben bei|haben (?:uns )?(?:entschieden|beschlossen)|steigen um|verwenden (?:ab|künftig)"
    r"|lassen)"
    r"|entschieden|beschlossen|abgemacht|decidido|decidimos|hemos decidido|vamos con|nos quedamos con|usaremos"
    r"|descartamos"
    r"|décidé|on part sur|on garde|on abandonne|on reste sur|on passe à|adopté)\b",
    re.IGNORECASE,
)
_LABEL = re.compile(
    r"\s*(?P<label>naming|decision|decided|verdict|outcome|conclusion|convention|rule|reminder|policy|style"
    r"|note for later"
    r"|(?:after|from) (?:the|our|today's) \w+(?: \w+)?|for the record|entscheidung|regel|merke|decisión|regla"
    r"|décision|règle)\s*:\s*",
    re.IGNORECASE,
)
_DECIDING_LABEL = re.compile(
    r"\s*(?:naming|deci|verdict|outcome|conclusion|after|from|entscheidung|décision)", re.IGNORECASE
)
_NORM = re.compile(
    r"\b(?:in (?:this|our) (?:repo(?:sitory)?|project|codebase|monorepo|app|service|package)|(?:we|our (?:team"
    r"|convention))"
    r" (?:never|always|only|don't|do not|use|prefer|require|name|put|write|keep|run|format|pin|follow|expect"
    r"|version|tag|squash"
    r"|rebase|test|log|ship|deploy|commit|store|target|support)|by convention|our (?:convention|rule|style"
    r"|policy) is|the (?:convention"
    r"|rule|policy) (?:here )?is|(?:is|are) (?:not allowed|forbidden|mandatory|required|off[ -]limits|read-only)"
    r"|no \w+ without"
    r"|has to pass|must pass|must be|must not|have to be|should always|should never|in diesem (?:repo|projekt)"
    r"|bei uns|hier"
    r" (?:gilt|wird|werden)|wir (?:benutzen|nutzen|verwenden|schreiben|committen|testen)|en este (?:repo|proyecto)"
    r"|usamos"
    r"|aquí (?:se|no)|dans ce (?:dépôt|repo|projet)|on (?:utilise|n'utilise|écrit|teste)|chez nous|ci (?:checks"
    r"|fails|enforces))\b",
    re.IGNORECASE,
)
# "Public functions need type hints": a plural without an article is a norm, "the button needs a margin" a request.
_GENERIC_NORM = re.compile(
    r"\s*(?:all|every|each|any|public|private|new|our)?\s*(?!the |this |these |those |that |it |i |you |we |they "
    r"|please )"
    r"(?:[\w./-]+ ){0,3}[\w./-]+s (?:in \S+ )?(?:need|must|should|have to|belong|go|live|stay|get|return|start|end"
    r"|are (?:cut|made"
    r"|named|written|kept|stored|run|called|prefixed|sorted|in|always|never|only))\b"
    r"|\s*(?:every|each|any|all) (?:[\w./-]+ ){1,4}(?:needs?|must|should|has to|gets?|goes|belongs?|starts?|ends?"
    r"|is|are)\b",
    re.IGNORECASE,
)
_TASTE = re.compile(
    r"\b(?:i (?:like|love|hate|prefer|dislike|can't stand|don't like|do not like|don't want|never want"
    r"|always (?:use|want|work)"
    r"|usually|work (?:on|in|with)|use|only use|read|speak)|i'm (?:used to|new to|a beginner|colou?r ?blind"
    r"|dyslexic|left-handed|not"
    r" (?:a native|fluent|familiar))|i'd (?:like|love|prefer|rather)|my (?:preference|preferred|favou?rite|editor"
    r"|shell|terminal|os|machine"
    r"|laptop|keyboard|native language|timezone|time zone)|ich (?:mag|hasse|bevorzuge|nutze|benutze|arbeite|möchte"
    r"|will)|mir (?:lieber"
    r"|gefällt)|prefiero|me gusta|odio|uso|trabajo|je préfère|j'aime|je déteste|j'utilise|je travaille)\b",
    re.IGNORECASE,
)
_STABLE_TASTE = re.compile(
    r"\b(?:i (?:like|love|hate|prefer|dislike|can't stand|don't like|do not like|never want|usually|only use)"
    r"|i'm (?:used to|new"
    r" to|a beginner|colou?r ?blind|dyslexic|left-handed|not)|i'd (?:prefer|rather)|my (?:preference|preferred"
    r"|favou?rite|editor|shell"
    r"|terminal|os|machine|laptop|keyboard|native language|time ?zone)|ich (?:mag|hasse|bevorzuge)|mir (?:lieber"
    r"|gefällt)|prefiero"
    r"|me gusta|odio|je préfère|j'aime|je déteste)\b",
    re.IGNORECASE,
)
_MACHINE = re.compile(
    r"\b(?:i'm|i am|i work|i use|i run|ich (?:bin|arbeite|nutze)|uso|trabajo|j'utilise"
    r"|je suis) (?:\w+ ){0,3}(?:windows|mac(?:os|book)?"
    r"|linux|ubuntu|debian|fedora|arch|nixos|wsl2?|powershell|zsh|fish|tmux|(?:neo)?vim|emacs|vs ?code|jetbrains"
    r"|pycharm|intellij"
    r"|webstorm|zed|helix|colou?r ?blind|screen reader)\b",
    re.IGNORECASE,
)
_ANSWER_STYLE = re.compile(
    r"\b(?:answer|reply|respond|explain|talk|speak|write|summari[sz]e|be|keep (?:it|your answers?|answers"
    r"|explanations|replies)"
    r"|show|ask|call me|address me|tell me|commit messages?|(?:your )?(?:answers|replies|explanations|summaries"
    r"|messages)"
    r"|antworte|erklär\w*|schreib\w*|fass\w*|sprich|nenn mich|commit-?nachrichten|responde|contesta|explica|escribe"
    r"|habla"
    r"|mensajes de commit|réponds?|explique|écris|parle|messages de commit)\b",
    re.IGNORECASE,
)
_LANGUAGE = re.compile(
    r"\b(?:in|auf|en) (?:plain |simple |einfachem )?(?:english|german|french|spanish|italian|portuguese|dutch"
    r"|polish|deutsch|englisch"
    r"|französisch|spanisch|español|inglés|francés|alemán|français|anglais|allemand|espagnol)\b",
    re.IGNORECASE,
)
_SELF = re.compile(r"\b(?:i|i'm|i'd|me|my|mine|ich|mir|mich|mein\w*|yo|mí|mis?|je|j'|moi|mon|ma|mes)\b", re.IGNORECASE)
_STYLE = re.compile(
    r"\b(?:short|brief|briefly|concise|terse|verbose|long|detailed|details|step by step|emojis?|bullet points?"
    r"|bullets|tables?|apolog\w*"
    r"|like i'm|tl;?dr|small(?:er)? diffs?|one-liners?|plain (?:words|english)|jargon|kurz|knapp|ausführlich|corto"
    r"|breve|court|bref)\b",
    re.IGNORECASE,
)
_TASK = re.compile(
    r"\s*(?:please |bitte |por favor[, ]*|now |then |ok(?:ay)?[, ]+|and )*(?:add|fix|look|check|make|create"
    r"|implement|refactor|rename|move|delete"
    r"|remove|update|bump|write|find|show|try|revert|undo|open|read|review|continue|go on|proceed|commit|push|merge"
    r"|rebase|deploy"
    r"|release|install|generate|investigate|debug|test|run|build|log in|explain|summarize|tell me|give me|help)\b",
    re.IGNORECASE,
)
_CENTRAL = re.compile(
    r"\b(?:entry ?point|start (?:reading|looking|in|at|with|there|here)|main (?:file|module|logic|loop)"
    r"|core (?:logic|of)|heart of"
    r"|everything (?:\w+ ){0,3}(?:is|lives|starts)|source of truth|single place|most important file|lives? in"
    r"|is (?:defined|configured"
    r"|implemented|handled|wired(?: up)?|registered) in|(?:logic|code|config(?:uration)?|schema|routes?"
    r"|types?) (?:is|are) in|einstieg\w*|liegt in"
    r"|punto de entrada|está en|point d'entrée|se trouve dans)\b",
    re.IGNORECASE,
)
_PATH = re.compile(
    r"(?<![\w/@:.-])(?:(?:[\w.@-]+/)+[\w.@-]*\w|(?:Dockerfile|Makefile|Justfile|Procfile|Gemfile|Rakefile"
    r"|Jenkinsfile)(?:\.\w+)?"
    r"|[\w-]+(?:\.[\w-]+)*\.(?:py|pyi|ts|tsx|js|jsx|mjs|cjs|go|rs|rb|java|kt|swift|c|h|cc|cpp|hpp|cs|php|ex|exs"
    r"|scala|sql|sh|yml|yaml"
    r"|toml|json|ini|cfg|env|tf|hcl|proto|graphql|vue|svelte|css|scss|html|gradle|lock|md))(?![\w/])"
)
_CAUSE_CUE = re.compile(
    r"\b(?:root cause|culprit|turned out|turns out|found it|the (?:real |actual |underlying )?(?:reason|problem"
    r"|issue|bug|cause|failure|error)"
    r" (?:was|is|were|came|comes)|was caused by|caused by|ursache (?:war|ist)|lag (?:daran|an)|la causa (?:era|fue"
    r"|es)|la cause (?:était|est))\b",
    re.IGNORECASE,
)
_BECAUSE = re.compile(
    r"\b(?:because|since|due to|as a result of|weil|da|porque|ya que|parce que|à cause)\b", re.IGNORECASE
)
_FAILURE = re.compile(
    r"\b(?:fail\w*|errors?|bugs?|crash\w*|leak\w*|br(?:oke|eaks?|oken)|flak\w*|h(?:ang|ung)\w*|time(?:d"
    r"|s)? ?-?outs?|slow\w*|wrong\w*|missing"
    r"|miss(?:ed|es)|rac(?:e|ed|y)|deadlock\w*|stale|null|undefined|regress\w*|exceptions?|panic\w*|denied"
    r"|overflow\w*|mismatch\w*|stopped"
    r"|empty|lost|duplicat\w*|corrupt\w*|rejected|refused|ignored|skipped|never (?:ran|called|closed|reached|fired)"
    r"|didn't|doesn't|did not"
    r"|could not|couldn't|50\d|40\d|fehl\w*|falló|fallaba|échou\w*)\b",
    re.IGNORECASE,
)
_OWN_CHOICE = re.compile(
    r"\s*(?:i|we)(?:'ve| have)? (?:also |just )?(?:changed|added|used|chose|kept|left|did|renamed|moved|made"
    r"|skipped|avoided|wrote|put|removed"
    r"|refactored|decided|went|picked|updated|did not|didn't|could not|couldn't)\b",
    re.IGNORECASE,
)
_HEDGED = re.compile(
    r"\b(?:may|might|maybe|perhaps|possibly|probably|likely|not sure|unsure|i (?:think|suspect|believe|guess"
    r"|assume)|seems?|appears? to"
    r"|could be|could have|unclear|hard to say|vermutlich|wahrscheinlich|quizás?|probablemente|peut-être"
    r"|probablement|would)\b",
    re.IGNORECASE,
)
_CHANGED = re.compile(
    r"\b(?:fix(?:ed)?|chang(?:e|ed)|add(?:ed)?|edit(?:ed)?|updat(?:e|ed)|patch(?:ed)?|rewr(?:ote|itten)|mov(?:e|ed)"
    r"|correct(?:ed)?|replac(?:e|ed)"
    r"|remov(?:e|ed)|now|adjusted|implemented|is in|are in|geändert|behoben|corregid\w+|cambi\w+|corrig\w+"
    r"|modifi\w+)\b",
    re.IGNORECASE,
)
_CODE = re.compile(r"`([^`\n]{3,200})`")
_RAN = re.compile(
    r"\b(?:i (?:ran|used|run|started|built|executed)|to (?:run|test|build|start|check|lint|deploy|reproduce)\b"
    r"|run (?:them|it|this|the)|(?:passes|works|green"
    r"|pass|succeeds) with|with|via|using|mit|con|avec)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Kept:
    """A part of an event that is worth keeping: its kind, its words and where they stand."""

    kind: Kind
    text: str
    start: int = 0
    end: int = 0


def remove_private(text: str) -> str:
    """Remove `<private>…</private>`. An open tag counts to the end."""
    return _PRIVATE.sub("", text)


def read_prompt(text: str) -> list[Kept]:
    """Find what a prompt of the user leaves behind. Pasted and quoted words leave nothing."""
    if len(text) > MAX_READ_CHARACTERS:
        return []
    own = _find_own_words(text)
    quoted = [len(text[match.start() : match.end()].split()) for match in _QUOTED.finditer(own)]
    if any(count > MAX_MENTIONED_WORDS for count in quoted) or _REPORTED.search(own):
        return []
    sentences = [one for one in split_sentences(own) if own[one.start : one.end].strip()]
    return list(_PromptReader(text, own, sentences).read())


def _find_own_words(text: str) -> str:
    """Blank the words of others. A label such as "naming:" and short code in a sentence announce no such words."""
    label = _LABEL.match(text)
    head = label.end() if label else 0
    own = text[:head] + find_own_words(text[head:]).text
    for match in _CODE.finditer(text):
        if (
            len(match[1].split()) <= MAX_CODE_WORDS
            and own[text.rfind("\n", 0, match.start()) + 1 : match.start()].strip()
        ):
            own = own[: match.start()] + match[0] + own[match.end() :]
    return own


class _PromptReader:
    def __init__(self, text: str, own: str, sentences: list[Sentence]) -> None:
        self.text, self.own, self.sentences = text, own, sentences
        self.stated = [(one.start, one.end) for one in find_statements(text) if one.start < one.end]

    def read(self) -> Iterator[Kept]:
        refused = False
        run: list[tuple[Kind, Sentence]] = []
        for sentence in self.sentences:
            kind = self._classify(self.own[sentence.start : sentence.end], sentence, refused)
            refused = refused or (not run and self._refuses(sentence))
            if kind == "file":
                yield from self._keep([(kind, sentence)])
            elif kind is not None:
                run.append((kind, sentence))
            elif run and self._continues(sentence):
                run.append((run[-1][0], sentence))
            elif run:
                yield from self._keep(run)
                run = []
        yield from self._keep(run)

    def _keep(self, run: list[tuple[Kind, Sentence]]) -> Iterator[Kept]:
        """Sentences in a row are one thing: the first says what it is."""
        if not run:
            return
        start, end = run[0][1].start, run[-1][1].end
        text = self.text[start:end].strip()
        if text and len(text) <= MAX_KEPT_CHARACTERS and not contains_secret(text):
            yield Kept(run[0][0], text, start, end)

    def _continues(self, sentence: Sentence) -> bool:
        said = self.own[sentence.start : sentence.end]
        is_fragment = len(said.split()) <= 8 and not _TASK.match(said)
        return is_fragment and not self._is_void(said)

    def _refuses(self, sentence: Sentence) -> bool:
        return _REFUSAL.match(self.own[sentence.start : sentence.end]) is not None

    def _is_void(self, said: str) -> bool:
        """A question, a guess, a joke or an order for this once."""
        asks = said.rstrip().endswith("?") or _QUESTION.match(said) is not None
        return (asks and not _STANDING_REQUEST.match(said)) or bool(_UNSURE.search(said) or _ONCE.search(said))

    def _classify(self, said: str, sentence: Sentence, refused: bool) -> Kind | None:
        if self._is_void(said) or len(said.split()) < 2:
            return None
        standing = _STANDING.search(said) is not None
        refusal = _REFUSAL.match(said)
        rest = said[refusal.end() :] if refusal else said
        if (
            (refusal or refused)
            and len(rest.split()) >= 2
            and (_CONTENT.search(rest) or standing)
            and not _TASK.match(rest)
        ):
            return "rule" if refusal and _PROHIBITION.match(said) and standing else "correction"
        label = _LABEL.match(said)
        if label and len(said[label.end() :].split()) >= 2:
            return "decision" if _DECIDING_LABEL.match(said) else "rule"
        if kind := self._classify_wish(said, standing):
            return kind
        if _CENTRAL.search(said) and _PATH.search(said):
            return "file"
        if _DECISION.search(said):
            return "decision"
        if _PROHIBITION.match(said) or _NORM.search(said) or _GENERIC_NORM.match(said):
            return "rule"
        stated = any(start < sentence.end and sentence.start < end for start, end in self.stated)
        if standing and (stated or not _TASK.match(said) or "," in said or len(said.split()) >= 4):
            return "rule"
        return ("wish" if _SELF.search(said) else "rule") if stated else None

    def _classify_wish(self, said: str, standing: bool) -> Kind | None:
        if _MACHINE.search(said) or _STABLE_TASTE.search(said):
            return "wish"
        if standing and (_TASTE.search(said) or (_ANSWER_STYLE.search(said) and self._is_about_answers(said))):
            return "wish"
        if _ANSWER_STYLE.match(said.lstrip().removeprefix("please ").removeprefix("bitte ")) and _LANGUAGE.search(said):
            return "wish"
        return None

    def _is_about_answers(self, said: str) -> bool:
        return bool(_SELF.search(said) or _LANGUAGE.search(said) or _STYLE.search(said))


def read_answer(text: str) -> list[Kept]:
    """Find what a final answer of the agent leaves behind: a cause that was found, files, and commands that worked."""
    sentences = [(one, text[one.start : one.end]) for one in split_sentences(text[:MAX_READ_CHARACTERS])]
    causes = [one for one in sentences if _states_cause(one[1])]
    found = [_keep_sentence("cause", *one) for one in causes]
    if causes:
        others = [one for one in sentences if one not in causes and _CHANGED.search(one[1])]
        paths = [match for one, _ in others for match in _PATH.finditer(text, one.start, one.end)]
        found += [Kept("file", match[0], *match.span()) for match in paths[:3]]
    for one, said in sentences:
        if not _HEDGED.search(said) and _RAN.search(_CODE.sub(" ", said)):
            for match in _CODE.finditer(text, one.start, one.end):
                if is_work(match[1]):
                    found.append(Kept("command", match[1], *match.span(1)))
    return [one for one in found if len(one.text) <= MAX_KEPT_CHARACTERS and not contains_secret(one.text)]


def _states_cause(said: str) -> bool:
    if _HEDGED.search(said) or said.rstrip().endswith("?"):
        return False
    if _CAUSE_CUE.search(said) and len(said.split()) >= 6:
        return True
    return bool(_BECAUSE.search(said) and _FAILURE.search(said)) and not _OWN_CHOICE.match(said)


def _keep_sentence(kind: Kind, sentence: Sentence, said: str) -> Kept:
    return Kept(kind, said.strip(), sentence.start, sentence.end)
