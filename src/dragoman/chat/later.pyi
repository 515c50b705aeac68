from dragoman.chat.agents import (
    Restored as Restored,
    check_agents as check_agents,
    make_tool_of as make_tool_of,
    staff_of as staff_of,
)
from dragoman.chat.answers import (
    AnswerJudge as AnswerJudge,
    AsyncTypedStream as AsyncTypedStream,
    TypedStream as TypedStream,
    answer_type as answer_type,
    grow as grow,
    without_tools as without_tools,
)
from dragoman.chat.handoffs import hand_over as hand_over, hand_to_right_one as hand_to_right_one
from dragoman.chat.ledger import (
    Ledger as Ledger,
    place_of as place_of,
    put_together as put_together,
    recovered_place as recovered_place,
)
