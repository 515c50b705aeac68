from .agents import Agent as Agent
from .client import DragomanPlugin as DragomanPlugin, TemporalConversation as TemporalConversation
from .payloads import SealingCodec as SealingCodec, TurnOutcome as TurnOutcome
from .turns import begin_turn as begin_turn, run_turn as run_turn
from .workflow import ConversationWorkflow as ConversationWorkflow
