"""engrain: a memory for AI agents that stays.

from engrain import Memory

with Memory("agent.db", user="ana") as memory:
    memory.remember("Ana prefers Python over JavaScript.", importance=0.8)
    print(memory.recall("Which language should the example use?"))
"""

import lazy_loader

__version__ = "0.1.0"

# __init__.pyi says where each name lives. A name is imported when first used, so that `engrain --help` is quick.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
