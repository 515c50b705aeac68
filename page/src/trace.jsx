// How a turn went: model calls with their attempts and first token, and tools, on one line of time.
import { useEffect, useState } from "preact/hooks";
import { api } from "./api.js";
import { IconButton, Notice } from "./parts.jsx";
import { count, harmless, seconds } from "./text.js";

const at = (value, total) => `${Math.max(0, Math.min(100, (value / total) * 100))}%`;
const wide = (start, end, total) => `max(3px, ${((end - start) / total) * 100}%)`;

function describe(span) {
  const facts = [];
  if (span.start != null) facts.push(`began after ${seconds(span.start)}, took ${seconds(span.end - span.start)}`);
  if (span.first_token != null) facts.push(`first token after ${seconds(span.first_token - span.start)}`);
  if (span.attempts?.length > 1)
    facts.push(
      span.attempts
        .map((each, place) => `attempt ${place + 1}${each.model ? ` (${each.model})` : ""}: ${each.outcome}`)
        .join("; "),
    );
  if (span.output != null) facts.push(`${count(span.input)} tokens in, ${count(span.output)} out`);
  if (span.failed) facts.push(span.kind === "tool" ? "failed" : "interrupted");
  return facts.join("; ");
}

function Bar({ span, total }) {
  if (span.start == null)
    return (
      <div class="lane">
        <small>no times are kept of it</small>
      </div>
    );
  const attempts = span.attempts?.length ? span.attempts : [{ start: span.start, end: span.end, outcome: "ok" }];
  return (
    <div class="lane">
      {attempts.length > 1 && (
        <i class="wait" style={{ left: at(span.start, total), width: wide(span.start, span.end, total) }} />
      )}
      {attempts.map((each, place) => (
        <i
          key={place}
          class={`bar ${span.kind} ${each.outcome !== "ok" || (span.failed && place === attempts.length - 1) ? "bad" : ""}`}
          style={{ left: at(each.start, total), width: wide(each.start, each.end, total) }}
          title={`${each.outcome}, ${seconds(each.end - each.start)}`}
        />
      ))}
      {span.first_token != null && (
        <i
          class="first"
          style={{ left: `min(${at(span.first_token, total)}, 100% - 2px)` }}
          title={`first token after ${seconds(span.first_token - span.start)}`}
        />
      )}
    </div>
  );
}

export function Trace({ id, version, onClose, onShow }) {
  const [turns, setTurns] = useState(null);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    let here = true;
    api.trace(id).then(
      (found) => here && setTurns(found.turns),
      (error) => here && setProblem(error.message),
    );
    return () => (here = false);
  }, [id, version]);
  return (
    <aside class="trace" aria-label="How the turns went">
      <header>
        <h2>Timeline</h2>
        <IconButton name="close" label="Close the timeline" onClick={onClose} />
      </header>
      <p class="legend" aria-hidden="true">
        <i class="bar model" /> model <i class="first" /> first token <i class="bar tool" /> tool <i class="bar bad" />{" "}
        failed attempt
      </p>
      {problem && <Notice>{problem}</Notice>}
      {turns?.length === 0 && <p class="aside">No turn has ended yet.</p>}
      {[...(turns ?? [])].reverse().map((turn) => {
        const total = turn.seconds || 1;
        return (
          <section key={turn.message} class="turn">
            <button type="button" class="turn-head" onClick={() => onShow(turn.message)}>
              <span dir="auto">{harmless(turn.title) || "(no text)"}</span>
              <small>{turn.seconds ? seconds(turn.seconds) : ""}</small>
            </button>
            <ol>
              {turn.spans.map((span, place) => (
                <li
                  key={place}
                  tabIndex={0}
                  aria-label={`${span.kind} ${span.name}: ${describe(span)}`}
                  title={describe(span)}
                >
                  <span class="name">
                    <span>{harmless(span.name.replace(/^[^:]*:/, ""))}</span>
                    {span.attempts?.length > 1 && <b>×{span.attempts.length}</b>}
                  </span>
                  <Bar span={span} total={total} />
                  <small>{span.start == null ? "" : seconds(span.end - span.start)}</small>
                </li>
              ))}
            </ol>
          </section>
        );
      })}
    </aside>
  );
}
