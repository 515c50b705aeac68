from dragoman._serving import WebServer as WebServer

from .frontends import FrontEnd as FrontEnd, Locate as Locate
from .guard import Access as Access
from .page import Page as Page
from .trace import AttemptSpan as AttemptSpan, Span as Span, Turn as Turn, timeline as timeline
