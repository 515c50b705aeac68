// What is asked before something is done: another model, deleting, exporting.
import { useState } from "preact/hooks";
import { api } from "./api.js";
import { Dialog, Notice } from "./parts.jsx";
import { harmless } from "./text.js";

export function Dialogs({ dialog, onClose, about, model, id, onChoose, onChange, onRemove }) {
  switch (dialog?.kind) {
    case "model":
      return <ModelDialog about={about} model={model} problem={dialog.problem} onChoose={onChoose} onClose={onClose} />;
    case "switch":
      return <SwitchDialog {...dialog} onChange={onChange} onClose={onClose} />;
    case "remove":
      return <RemoveDialog item={dialog.item} onRemove={onRemove} onClose={onClose} />;
    case "export":
      return <ExportDialog id={id} onClose={onClose} />;
    default:
      return null;
  }
}

function ModelDialog({ about, model, problem, onChoose, onClose }) {
  const [name, setName] = useState("");
  const shown = (about?.models ?? []).filter((each) => each.toLowerCase().includes(name.toLowerCase()));
  return (
    <Dialog title="Model" onClose={onClose}>
      <form onSubmit={(event) => (event.preventDefault(), name.trim() && onChoose(name.trim()))}>
        <label for="model-name">Any model, as provider:model</label>
        <div class="row">
          <input
            id="model-name"
            value={name}
            autofocus
            placeholder={model}
            autocomplete="off"
            spellcheck={false}
            onInput={(event) => setName(event.target.value)}
          />
          <button class="primary" disabled={!name.trim()}>
            Choose
          </button>
        </div>
      </form>
      {problem && <Notice>{problem}</Notice>}
      <ul class="models" aria-label="Models that can be chosen">
        {shown.map((each) => (
          <li key={each}>
            <button type="button" aria-current={each === model} onClick={() => onChoose(each)}>
              {each}
            </button>
          </li>
        ))}
      </ul>
    </Dialog>
  );
}

function SwitchDialog({ model, wanted, losses, onChange, onClose }) {
  return (
    <Dialog title="Go on with another model" onClose={onClose}>
      <p>
        From now on <strong>{model}</strong> answers.
      </p>
      {losses.length ? (
        <>
          <p>It will not get all of this conversation:</p>
          <ul class="losses">
            {losses.map((loss, place) => (
              <li key={place}>{harmless(loss)}</li>
            ))}
          </ul>
        </>
      ) : (
        <p class="aside">It gets all of this conversation.</p>
      )}
      <div class="buttons">
        <button type="button" onClick={onClose}>
          Cancel
        </button>
        <button type="button" class="primary" autofocus onClick={() => onChange(wanted)}>
          Go on with it
        </button>
      </div>
    </Dialog>
  );
}

function RemoveDialog({ item, onRemove, onClose }) {
  return (
    <Dialog title="Delete this conversation?" onClose={onClose}>
      <p dir="auto">
        “{harmless(item.title)}” with its {item.messages} messages will be gone for good.
      </p>
      <div class="buttons">
        <button type="button" autofocus onClick={onClose}>
          Keep it
        </button>
        <button type="button" class="danger" onClick={() => onRemove(item.id)}>
          Delete
        </button>
      </div>
    </Dialog>
  );
}

function ExportDialog({ id, onClose }) {
  return (
    <Dialog title="Export" onClose={onClose}>
      <p>The conversation as a file:</p>
      <div class="buttons left">
        <a class="button" href={api.exported(id, "markdown")} download onClick={onClose}>
          Markdown, to be read
        </a>
        <a class="button" href={api.exported(id, "json")} download onClick={onClose}>
          JSON, to be kept
        </a>
      </div>
    </Dialog>
  );
}
