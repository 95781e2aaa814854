"""Tell whether a text speaks to the model that will read it, as injected texts do."""

from __future__ import annotations

import re

# What people say to each other ("from now on, call me Bo") is not meant: these turn against earlier instructions, play
# the system's part, or ask for something to be kept from the user. Bounded, so that any text is read in linear time.
_SIGNS = re.compile(
    r"""
      \b(?:ignore|disregard|forget|override|bypass)\b[^.!?\n]{0,30}
        \b(?:previous|prior|above|earlier|preceding|all|other|your|system|safety)\b[^.!?\n]{0,30}
        \b(?:instructions?|prompts?|rules?|guidelines|directions|constraints)\b
    | \b(?:ignoriere|vergiss|missachte)\b[^.!?\n]{0,40}\b(?:anweisungen|regeln|vorgaben)\b
    | \b(?:ignore[zr]?|oublie[zr]?)\b[^.!?\n]{0,40}\b(?:consignes|instructions|règles)\b
    | \b(?:ignora|olvida|omite)\b[^.!?\n]{0,40}\b(?:instrucciones|indicaciones|reglas)\b
    | <\|?(?:im_start|im_end|system|endoftext)\|?> | \[/?(?:INST|SYSTEM)\]
    | ^[ ]{0,8}\#{0,4}[ ]{0,4}system[ ]?(?:(?:prompt|message)[ ]?:|:[ ]{1,4}(?:you|the\ user|ignore|from\ now)\b)
    | \b(?:reveal|print|repeat|leak|show)\b[^.!?\n]{0,20}\b(?:system|hidden|initial)\ (?:prompt|instructions|message)\b
    | \b(?:do\ not|don't|never|without)\b[^.!?\n]{0,20}\b(?:tell|inform|mention|alert)(?:ing)?\b
        [^.!?\n]{0,20}\bthe\ user\b
    | \byou\ are\ now\ (?:in\ )?(?:developer|admin|debug|jailbr\w+|dan)\b
    | \bnew\ (?:system\ )?instructions\ (?:for\ (?:the\ )?(?:ai|assistant|model|agent)|:)
    | \b(?:ai|assistants?|agents?|language\ models?|llms?)\b[^.!?\n]{0,20}\b(?:must|should)\b[^.!?\n]{0,60}
        \b(?:send|forward|transfer|email|upload|execute|run|delete|recommend)\b
    """,
    re.VERBOSE | re.IGNORECASE | re.MULTILINE,
)


def reads_like_an_order(text: str) -> bool:
    return _SIGNS.search(text) is not None
