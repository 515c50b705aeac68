// Where the user writes: text, files by choosing, dropping and pasting; Enter sends, Escape stops.
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { Icon, IconButton } from "./parts.jsx";
import { harmless, size } from "./text.js";

const read = (file) =>
  new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onerror = () => reject(reader.error);
    reader.onload = () =>
      resolve({
        name: file.name || "pasted",
        type: file.type,
        size: file.size,
        data: reader.result.slice(reader.result.indexOf(",") + 1),
        preview: /^image\/(png|jpeg|gif|webp)$/.test(file.type) ? reader.result : null,
      });
    reader.readAsDataURL(file);
  });

export function Composer({ draft, setDraft, busy, disabled, limit, onSend, onStop, onProblem, model, onModel }) {
  const field = useRef();
  const chooser = useRef();
  const [dragged, setDragged] = useState(false);
  const [reading, setReading] = useState(0);
  const waiting = useRef(false);
  const { text, files } = draft;

  useLayoutEffect(() => field.current.focus(), []); // whoever opens the page can write at once
  useLayoutEffect(() => {
    const area = field.current;
    area.style.height = "auto";
    area.style.height = `${Math.min(area.scrollHeight, innerHeight * 0.4)}px`;
  }, [text]);

  const add = async (given) => {
    const found = [...given];
    if (!found.length) return;
    const total = [...files, ...found].reduce((sum, file) => sum + file.size, 0);
    if (total > limit) return onProblem(`Files may have ${size(limit)} together; these have ${size(total)}.`);
    setReading((number) => number + 1);
    try {
      const loaded = await Promise.all(found.map(read));
      setDraft((before) => ({ ...before, files: [...before.files, ...loaded] }));
    } catch {
      waiting.current = false;
      onProblem("A file could not be read.");
    }
    setReading((number) => number - 1);
  };

  useLayoutEffect(() => {
    const has = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
    const over = (event) => has(event) && (event.preventDefault(), setDragged(true));
    const leave = (event) => event.relatedTarget === null && setDragged(false);
    const drop = (event) => has(event) && (event.preventDefault(), setDragged(false), add(event.dataTransfer.files));
    addEventListener("dragover", over);
    addEventListener("dragleave", leave);
    addEventListener("drop", drop);
    return () => (
      removeEventListener("dragover", over),
      removeEventListener("dragleave", leave),
      removeEventListener("drop", drop)
    );
  });

  const ready = !busy && !disabled && (text.trim() || files.length || reading);
  const send = () => {
    if (reading) return (waiting.current = true); // with the files that are still being read
    const said = { ...draft, text: field.current.value }; // Enter may come before the last letter is drawn
    if (!busy && !disabled && (said.text.trim() || files.length)) onSend(said);
  };
  useLayoutEffect(() => {
    if (!reading && waiting.current) {
      waiting.current = false;
      send();
    }
  }, [reading]);
  const key = (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      send();
    }
  };
  const paste = (event) => {
    if (event.clipboardData.files.length) {
      event.preventDefault();
      add(event.clipboardData.files);
    }
  };

  return (
    <div class="composer-frame">
      {dragged && (
        <div class="drop" aria-hidden="true">
          Drop files to add them
        </div>
      )}
      <form class="composer" onSubmit={(event) => (event.preventDefault(), send())}>
        {files.length > 0 && (
          <ul class="attachments" aria-label="Files of this message">
            {files.map((file, place) => (
              <li key={place}>
                {file.preview ? <img src={file.preview} alt="" /> : <Icon name="file" />}
                <span>{harmless(file.name)}</span>
                <small>{size(file.size)}</small>
                <IconButton
                  name="close"
                  label={`Remove ${file.name}`}
                  onClick={() =>
                    setDraft((before) => ({ ...before, files: before.files.filter((_, index) => index !== place) }))
                  }
                />
              </li>
            ))}
          </ul>
        )}
        <textarea
          id="composer"
          ref={field}
          rows={1}
          value={text}
          dir="auto"
          placeholder="Say something"
          aria-label="Your message"
          onInput={(event) => setDraft((before) => ({ ...before, text: event.target.value }))}
          onKeyDown={key}
          onPaste={paste}
        />
        <div class="composer-row">
          <IconButton name="clip" label="Add files" onClick={() => chooser.current.click()} />
          <input
            ref={chooser}
            type="file"
            multiple
            hidden
            onChange={(event) => (add(event.target.files), (event.target.value = ""))}
          />
          <button
            type="button"
            class="model-button"
            aria-label={model ? `Model: ${model}. Choose another` : "Choose a model"}
            onClick={onModel}
            disabled={busy}
          >
            {model || "Model"}
          </button>
          {busy ? (
            <IconButton name="stop" class="go" label="Stop (Escape)" onClick={onStop} />
          ) : (
            <button class="icon-button go" aria-label="Send" title="Send (Enter)" disabled={!ready}>
              <Icon name="send" />
            </button>
          )}
        </div>
      </form>
    </div>
  );
}
