// One conversation: its messages, the turn that is coming, and where one stands in it.
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { api } from "./api.js";
import { Chunk, useChunks } from "./chunk.jsx";
import { resultsOf } from "./live.js";
import { Message } from "./message.jsx";
import { IconButton } from "./parts.jsx";
import { shortModel } from "./text.js";

const EXAMPLES = ["What can you do here?", "Explain this error to me: ", "Write a short poem about interpreters."];

export function Talk({ talk, live, id, about, model, onAnswer, onFork, busy, onExample, setTalk, onProblem }) {
  const root = useRef();
  const stuck = useRef(true);
  const [away, setAway] = useState(false);
  const loading = useRef(false);
  const kept = useMemo(
    () => (talk?.messages ?? []).filter((message) => !live || message.index < live.base),
    [talk, live?.base],
  );
  const messages = useMemo(
    () => (live ? [...kept, ...(live.said ? [live.said] : []), ...live.messages] : kept),
    [kept, live],
  );
  // Only the end of a conversation changes while the model answers: what is before it is not looked at again.
  const tail = Math.max(0, lastAssistant(kept));
  const settled = useMemo(() => kept.slice(0, tail), [kept]);
  const moving = messages.slice(tail);
  const results = useMemo(() => resultsOf(moving), [messages]);
  const chunks = useChunks(settled);
  const pending = useMemo(
    () => new Map((busy ? [] : (talk?.pending ?? [])).map((each) => [each.id, each])),
    [talk, busy],
  );

  // Whoever is at the end stays there, also when a picture or a card grows, or the browser learns how tall things are.
  const inner = useRef();
  const toEnd = () => root.current && (root.current.scrollTop = root.current.scrollHeight);
  useLayoutEffect(() => {
    if (!inner.current) return;
    const grown = new ResizeObserver(() => stuck.current && toEnd());
    grown.observe(inner.current);
    grown.observe(root.current);
    toEnd();
    return () => grown.disconnect();
  }, [Boolean(messages.length || live)]);
  const top = useRef(0);

  const scrolled = () => {
    const area = root.current;
    const atEnd = area.scrollHeight - area.scrollTop - area.clientHeight < 80;
    if (atEnd) stuck.current = true;
    else if (area.scrollTop < top.current) stuck.current = false;
    top.current = area.scrollTop;
    setAway(!stuck.current);
    if (area.scrollTop < 600) earlier();
  };
  const earlier = async () => {
    if (loading.current || !talk?.first || live) return;
    loading.current = true;
    try {
      const found = await api.show(id, talk.first);
      const area = root.current;
      const below = area.scrollHeight - area.scrollTop;
      setTalk((before) => ({ ...before, first: found.first, messages: [...found.messages, ...before.messages] }));
      requestAnimationFrame(() => {
        area.scrollTop = area.scrollHeight - below;
        loading.current = false;
      });
    } catch (error) {
      loading.current = false;
      onProblem(error);
    }
  };

  if (id && !talk && !live)
    return (
      <div class="talk loading" aria-busy="true">
        <div class="skeleton">
          <i />
          <i />
          <i />
          <i />
        </div>
      </div>
    );
  if (talk?.missing)
    return (
      <div class="talk">
        <div class="welcome">
          <h2>There is no such conversation</h2>
          <p class="aside">It was deleted, or it is in another store.</p>
        </div>
      </div>
    );
  if (!messages.length && !live)
    return (
      <div class="talk">
        <div class="welcome">
          <img src="/assets/icon.svg" alt="" width="56" height="56" />
          <h2>What shall we talk about?</h2>
          <p class="aside">
            {model ? `${shortModel(model)} answers.` : ""} Drop pictures and files here, or paste them.
          </p>
          <ul>
            {EXAMPLES.map((text) => (
              <li key={text}>
                <button type="button" onClick={() => onExample(text)}>
                  {text}
                </button>
              </li>
            ))}
          </ul>
        </div>
      </div>
    );
  const newest = lastAssistant(messages);
  return (
    <div class="talk" ref={root} onScroll={scrolled} tabIndex={-1}>
      <div class="messages" ref={inner} role="log" aria-live="off" aria-label="Conversation" aria-busy={busy}>
        {talk?.first > 0 && <p class="aside center">{talk.first.toLocaleString("en")} earlier messages</p>}
        {chunks.map(([number, part]) => (
          <Chunk key={number} number={number} messages={part} onAnswer={onAnswer} onFork={onFork} busy={busy} />
        ))}
        {moving.map((message, place) => (
          <Message
            key={message.index ?? live.base + tail + place - kept.length}
            message={message}
            results={results}
            running={live?.running}
            pending={tail + place === newest ? pending : null}
            onAnswer={onAnswer}
            onFork={onFork}
            busy={busy}
          />
        ))}
        {live &&
          (!live.messages.length || live.messages.at(-1).role === "tool") &&
          !Object.keys(live.running).length && <p class="pulse">Waiting for the model…</p>}
      </div>
      {away && (
        <IconButton name="down" class="to-end" label="To the end" onClick={() => ((stuck.current = true), toEnd())} />
      )}
    </div>
  );
}

const lastAssistant = (messages) => messages.findLastIndex((message) => message.role === "assistant");
