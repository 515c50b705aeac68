// A part of a long conversation. What is far from the screen is a gap of the same height, so that a conversation of
// thousands of messages costs no more than what is looked at.
import { memo } from "preact/compat";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { resultsOf } from "./live.js";
import { Message } from "./message.jsx";

const SIZE = 40;
const NEAR = "1500px";

/** The messages in parts. A part that did not change is the same array as before, so that it is not drawn again. */
export function useChunks(messages) {
  const before = useRef(new Map());
  return useMemo(() => {
    const found = new Map();
    for (let place = 0; place < messages.length;) {
      const number = Math.floor(messages[place].index / SIZE);
      let end = place + 1;
      while (end < messages.length && Math.floor(messages[end].index / SIZE) === number) end++;
      // The results of a call may stand at the beginning of the next part.
      const part = messages.slice(place, messages[end]?.role === "tool" ? end + 1 : end);
      const known = before.current.get(number);
      const same = known?.length === part.length && known.every((message, each) => message === part[each]);
      found.set(number, same ? known : part);
      place = end;
    }
    before.current = found;
    return [...found];
  }, [messages]);
}

export const Chunk = memo(function Chunk({ number, messages, onAnswer, onFork, busy }) {
  const root = useRef();
  const [height, setHeight] = useState(null);
  const results = useMemo(() => resultsOf(messages), [messages]);
  useLayoutEffect(() => {
    const element = root.current;
    const watcher = new IntersectionObserver(
      ([entry]) => setHeight((known) => (entry.isIntersecting ? null : (known ?? element.offsetHeight))),
      { root: element.closest(".talk"), rootMargin: NEAR },
    );
    watcher.observe(element);
    return () => watcher.disconnect();
  }, []);
  if (height !== null) return <div class="chunk" ref={root} style={{ height: `${height}px` }} />;
  const own = messages.filter((message) => Math.floor(message.index / SIZE) === number);
  return (
    <div class="chunk" ref={root}>
      {own.map((message) => (
        <Message
          key={message.index}
          message={message}
          results={results}
          onAnswer={onAnswer}
          onFork={onFork}
          busy={busy}
        />
      ))}
    </div>
  );
});
