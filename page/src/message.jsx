// One message: what the user said, what the model said and thought, and its calls of tools as cards.
import { memo } from "preact/compat";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Icon, IconButton, Markdown } from "./parts.jsx";
import { dollars, exact, harmless, hostOf, pretty, seconds, shortModel, size, tokens } from "./text.js";

function Media({ block }) {
  const name = exact(block.name ?? block.kind);
  if (block.image)
    return (
      <a class="picture" href={block.url} target="_blank" rel="noopener">
        <img src={block.url} alt={name} loading="lazy" />
      </a>
    );
  if (!block.url)
    return (
      <span class="file">
        <Icon name="file" />
        <span>{name}</span>
      </span>
    );
  return (
    <a
      class="file"
      href={block.url}
      target="_blank"
      rel="noopener noreferrer"
      download={block.size === null ? undefined : name}
    >
      <Icon name="file" />
      <span>{name}</span>
      {block.size != null && <small>{size(block.size)}</small>}
    </a>
  );
}

function Thinking({ block }) {
  if (!block.text && !block.open) return <p class="aside">The model's thoughts are not shown by its provider.</p>;
  return (
    <details class="thinking">
      <summary>
        <Icon name="chevron" />
        {block.open ? <span class="pulse">Thinking…</span> : "Thought about it"}
      </summary>
      <div class="thought" dir="auto">
        {harmless(block.text)}
      </div>
    </details>
  );
}

/** How long a call has been running, counted while one looks. */
function Elapsed({ since }) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 200);
    return () => clearInterval(timer);
  }, []);
  return <span class="elapsed">{seconds(Math.max(0, (now - since) / 1000))}</span>;
}

const STATES = {
  writing: "is being called…",
  running: "is running",
  waiting: "waits for your approval",
  done: "done",
  failed: "failed",
  denied: "was not allowed",
  idle: "was not carried out",
};

function stateOf(block, result, since, pending) {
  if (result) return result.error_type === "denied" ? "denied" : result.is_error ? "failed" : "done";
  if (pending) return "waiting";
  if (since) return "running";
  return block.open ? "writing" : "idle";
}

export function ToolCard({ block, result, since, pending, onAnswer }) {
  const state = stateOf(block, result, since, pending);
  const [open, setOpen] = useState(false);
  const shown = open || state === "waiting";
  return (
    <section class={`card ${state}`} aria-label={`Tool ${exact(block.name)}: ${STATES[state]}`}>
      <button type="button" class="card-head" aria-expanded={shown} onClick={() => setOpen(!open)}>
        <Icon name="tool" />
        <strong>{exact(block.name)}</strong>
        <span class="summary">{shown ? "" : exact(block.arguments).slice(0, 140)}</span>
        <span class="state">{STATES[state]}</span>
        {since && !result && <Elapsed since={since} />}
        {result?.duration != null && <span class="elapsed">{seconds(result.duration)}</span>}
        {result?.retries > 0 && <span class="elapsed">{result.retries === 1 ? "1 retry" : `${result.retries} retries`}</span>}
        <Icon name="chevron" />
      </button>
      {shown && (
        <div class="card-body">
          <h4>Arguments</h4>
          <pre class="plain" tabIndex={0}>
            {pretty(block.arguments)}
          </pre>
          {pending && <Approval pending={pending} onAnswer={onAnswer} />}
          {result && (
            <>
              <h4>{result.is_error ? "Error" : "Result"}</h4>
              <pre class="plain" tabIndex={0}>
                {pretty(result.text)}
              </pre>
              {(result.media ?? []).map((each) => (
                <Media key={each.url} block={each} />
              ))}
            </>
          )}
        </div>
      )}
    </section>
  );
}

/** The question about a call: its exact arguments stand above; what would be remembered is shown before it is. */
function Approval({ pending, onAnswer }) {
  const [always, setAlways] = useState(false);
  const [reason, setReason] = useState("");
  const answer = (approved, more = {}) => onAnswer({ fingerprint: pending.fingerprint, approved, ...more });
  if (pending.answered) return <p class="aside">Answered. The other calls still wait for you.</p>;
  return (
    <div class="approval" role="group" aria-label={`May ${exact(pending.name)} run with these arguments?`}>
      {pending.uncertain && (
        <p class="warn">This call had begun when the program was stopped. It may have done its work already.</p>
      )}
      {pending.reason && !pending.uncertain && <p class="aside">{harmless(pending.reason)}</p>}
      <div class="buttons">
        <button type="button" class="primary" onClick={() => answer(true)}>
          {pending.uncertain ? "Run it again" : "Allow once"}
        </button>
        {pending.rules.length > 0 && !pending.uncertain && (
          <button type="button" aria-expanded={always} onClick={() => setAlways(!always)}>
            Always allow…
          </button>
        )}
        <input
          value={reason}
          onInput={(event) => setReason(event.target.value)}
          aria-label="Why not (the model reads it)"
          placeholder="Why not? (optional)"
          maxLength={500}
        />
        <button type="button" class="danger" onClick={() => answer(false, { reason })}>
          Deny
        </button>
      </div>
      {always && (
        <ul class="rules" aria-label="Rules that can be remembered">
          {pending.rules.map((rule, place) => (
            <li key={place}>
              <code>{exact(rule)}</code>
              <button type="button" onClick={() => answer(true, { remember: rule })}>
                Remember this and allow
              </button>
            </li>
          ))}
          <li class="aside">A rule holds until this server is stopped, or the tool changes.</li>
        </ul>
      )}
    </div>
  );
}

function Editor({ message, onDone, onCancel }) {
  const text = message.blocks
    .filter((block) => block.type === "text")
    .map((block) => block.text)
    .join("\n");
  const [edited, setEdited] = useState(text);
  const field = useRef();
  useLayoutEffect(() => {
    field.current.focus();
    field.current.setSelectionRange(text.length, text.length);
  }, []);
  const keep = message.blocks.flatMap((block, place) => (block.type === "media" ? [place] : []));
  const send = () => (edited.trim() || keep.length) && onDone({ at: message.index, text: edited, keep });
  const key = (event) => {
    if (event.key === "Escape") onCancel();
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      send();
    }
  };
  return (
    <div class="editor">
      <textarea
        ref={field}
        value={edited}
        rows={Math.min(12, edited.split("\n").length + 1)}
        aria-label="Your message"
        onInput={(event) => setEdited(event.target.value)}
        onKeyDown={key}
      />
      <div class="buttons">
        <small>This begins a new conversation from here; the old one stays.</small>
        <button type="button" onClick={onCancel}>
          Cancel
        </button>
        <button type="button" class="primary" onClick={send}>
          Ask again
        </button>
      </div>
    </div>
  );
}

function Footer({ message }) {
  const [copied, setCopied] = useState(false);
  const text = message.blocks
    .filter((block) => block.type === "text")
    .map((block) => block.text)
    .join("\n\n");
  const copy = async () => {
    await navigator.clipboard.writeText(text).catch(() => {});
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  const facts = [
    shortModel(message.model),
    seconds(message.seconds),
    tokens(message.usage),
    dollars(message.cost),
  ].filter(Boolean);
  return (
    <footer>
      {text && <IconButton name={copied ? "check" : "copy"} label="Copy the answer" onClick={copy} />}
      <span title={message.model}>{facts.join(" · ")}</span>
    </footer>
  );
}

/** What the answer cites. A title is whatever the page calls itself, so the host always stands beside it. */
const Sources = ({ sources }) => (
  <ol class="sources" aria-label="Sources">
    {sources.map(([name, link], place) => (
      <li key={place}>
        {hostOf(link) ? (
          <>
            <a href={link} title={exact(link)} target="_blank" rel="noopener noreferrer nofollow">
              {exact(name)}
            </a>
            <small>{hostOf(link)}</small>
          </>
        ) : (
          exact(name)
        )}
      </li>
    ))}
  </ol>
);

const ENDINGS = {
  interrupted: "The answer was stopped here.",
  error: "The provider failed in the middle of the answer.",
  max_tokens: "The answer was cut at the limit of tokens.",
  context_full: "The model's window was full before the answer was.",
  content_filter: "The provider withheld the rest.",
  refusal: "The model declined.",
};

export const Message = memo(function Message({ message, results, running, pending, onAnswer, onFork, busy }) {
  const [editing, setEditing] = useState(false);
  if (message.role === "tool") return null;
  const mine = message.role === "user";
  const blocks = message.blocks.map((block, place) => {
    switch (block.type) {
      case "text":
        return mine ? (
          <p key={place} class="said" dir="auto">
            {harmless(block.text)}
          </p>
        ) : (
          <Markdown key={place} text={block.text} open={block.open} />
        );
      case "thinking":
        return <Thinking key={place} block={block} />;
      case "media":
        return <Media key={place} block={block} />;
      case "tool_call":
        return (
          <ToolCard
            key={block.id + place}
            block={block}
            result={results?.get(block)}
            since={running?.[block.id]}
            pending={pending?.get(block.id)}
            onAnswer={onAnswer}
          />
        );
      default:
        return (
          <p key={place} class="aside">
            Something that only {block.provider ?? "the provider"} understands.
          </p>
        );
    }
  });
  return (
    <article
      class={`message ${message.role}`}
      data-index={message.index}
      aria-label={mine ? "You said" : "The model answered"}
    >
      {editing ? (
        <Editor
          message={message}
          onCancel={() => setEditing(false)}
          onDone={(said) => onFork(said).then((done) => done && setEditing(false))}
        />
      ) : (
        <div class="blocks">{blocks}</div>
      )}
      {message.live && !message.blocks.length && <p class="pulse">Waiting for the model…</p>}
      {message.sources && <Sources sources={message.sources} />}
      {!mine && ENDINGS[message.stop_reason] && <p class="aside">{ENDINGS[message.stop_reason]}</p>}
      {!mine &&
        !message.live &&
        message.blocks.some((block) => block.type === "text") &&
        !message.blocks.some((block) => block.type === "tool_call") && <Footer message={message} />}
      {mine && !editing && onFork && message.index !== undefined && (
        <footer>
          <IconButton name="edit" label="Edit and ask again" disabled={busy} onClick={() => setEditing(true)} />
        </footer>
      )}
    </article>
  );
});
