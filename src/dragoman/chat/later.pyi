from dragoman.chat.agents import check_agents as check_agents, make_tool_of as make_tool_of, staff_of as staff_of
from dragoman.chat.answers import (
    AnswerJudge as AnswerJudge,
    AsyncTypedStream as AsyncTypedStream,
    TypedStream as TypedStream,
    answer_type as answer_type,
    grow as grow,
    without_tools as without_tools,
)
from dragoman.chat.handoffs import (
    charge_of as charge_of,
    hand_over as hand_over,
    in_charge as in_charge,
    name_agent as name_agent,
)
from dragoman.chat.ledger import Ledger as Ledger, put_together as put_together
