// Small parts: icons, text, code with a button to copy it.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { toHtml } from "./text.js";

const PATHS = {
  plus: "M12 5v14M5 12h14",
  search: "M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14M20 20l-4-4",
  send: "M12 19V5M6 11l6-6 6 6",
  stop: "M7 7h10v10H7z",
  copy: "M9 9h10v10H9zM5 15V5h10",
  check: "M5 12l5 5 9-10",
  edit: "M4 20h4L19 9l-4-4L4 16z",
  clip: "M20 11l-8.500 8.500a5 5 0 0 1-7-7L13 4a3.300 3.300 0 0 1 4.700 4.700L9.500 17a1.700 1.700 0 0 1-2.400-2.400L14.500 7.500",
  menu: "M4 7h16M4 12h16M4 17h16",
  close: "M6 6l12 12M18 6L6 18",
  chevron: "M9 6l6 6-6 6",
  down: "M12 5v14M6 13l6 6 6-6",
  trash: "M5 7h14M10 7V5h4v2M7 7l1 13h8l1-13",
  timeline: "M4 6h9M8 12h12M6 18h7",
  export: "M12 4v11M7 10l5 5 5-5M5 20h14",
  tool: "M14.500 6.500a4 4 0 0 0-5.300 5L4 16.700 7.300 20l5.200-5.200a4 4 0 0 0 5-5.300l-2.700 2.700-2.500-.500-.500-2.500z",
  file: "M6 3h8l4 4v14H6zM14 3v4h4",
};

export const Icon = ({ name }) => (
  <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
    <path d={PATHS[name]} />
  </svg>
);

/** A button that is an icon, with its name for those who do not see it. */
export const IconButton = ({ name, label, class: kind = "", ...rest }) => (
  <button type="button" class={`icon-button ${kind}`} aria-label={label} title={label} {...rest}>
    <Icon name={name} />
  </button>
);

function addCopyButtons(root) {
  for (const block of root.querySelectorAll("pre")) {
    if (block.parentElement.classList.contains("code")) continue;
    const frame = document.createElement("div");
    frame.className = "code";
    const head = document.createElement("div");
    head.className = "code-head";
    const language = document.createElement("span");
    language.textContent = block.className.replace("language-", "") || "text";
    const copy = document.createElement("button");
    copy.type = "button";
    copy.textContent = "Copy";
    copy.setAttribute("aria-label", "Copy this code");
    head.append(language, copy);
    block.replaceWith(frame);
    frame.append(head, block);
    block.tabIndex = 0;
  }
}

async function copyCode(event) {
  const button = event.target.closest(".code-head button");
  if (!button) return;
  const text = button.closest(".code").querySelector("pre").innerText.replace(/\n$/, "");
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Not allowed";
  }
  setTimeout(() => (button.textContent = "Copy"), 1500);
}

/** Markdown. While it grows it is not read anew for every letter: the longer it is, the more rarely. */
export function Markdown({ text, open }) {
  const [shown, setShown] = useState(text);
  const root = useRef();
  const timer = useRef(0);
  useEffect(() => {
    if (!open) {
      clearTimeout(timer.current);
      timer.current = 0;
      setShown(text);
    } else if (!timer.current) {
      timer.current = setTimeout(
        () => {
          timer.current = 0;
          setShown(latest.current);
        },
        Math.min(250, 16 + text.length / 400),
      );
    }
  }, [text, open]);
  const latest = useRef(text);
  latest.current = text;
  useEffect(() => () => clearTimeout(timer.current), []);
  const html = useMemo(() => toHtml(open ? shown : text), [open ? shown : text]);
  useLayoutEffect(() => addCopyButtons(root.current), [html]);
  return <div class="markdown" dir="auto" ref={root} onClick={copyCode} dangerouslySetInnerHTML={{ __html: html }} />;
}

/** A dialog that closes with Escape and gives the focus back. */
export function Dialog({ title, onClose, children }) {
  const root = useRef();
  useLayoutEffect(() => {
    const dialog = root.current;
    dialog.showModal();
    return () => dialog.close(); // which gives the focus back
  }, []);
  return (
    <dialog
      ref={root}
      aria-label={title}
      onClose={(event) => event.target.isConnected && onClose()}
      onClick={(event) => event.target === root.current && onClose()}
    >
      <div class="dialog-body">
        <header>
          <h2>{title}</h2>
          <IconButton name="close" label="Close" onClick={onClose} />
        </header>
        {children}
      </div>
    </dialog>
  );
}

export const Notice = ({ kind = "error", children, action }) => (
  <div class={`notice ${kind}`} role={kind === "error" ? "alert" : "status"}>
    <span>{children}</span>
    {action}
  </div>
);
