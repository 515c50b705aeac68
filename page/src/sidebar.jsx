// The conversations that there are: search, rename, delete.
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { Icon, IconButton } from "./parts.jsx";
import { harmless, shortModel, when } from "./text.js";

function Item({ item, here, onOpen, onRename, onRemove }) {
  const [title, setTitle] = useState(null);
  const field = useRef();
  useLayoutEffect(() => field.current?.select(), [title !== null]); // before the next key is heard
  const done = () => {
    if (title?.trim() && title.trim() !== item.title) onRename(item.id, title.trim());
    setTitle(null);
  };
  if (title !== null)
    return (
      <li class="here">
        <input
          ref={field}
          value={title}
          aria-label="Title of the conversation"
          maxLength={200}
          onInput={(event) => setTitle(event.target.value)}
          onBlur={done}
          onKeyDown={(event) =>
            event.key === "Enter" ? done() : event.key === "Escape" && (event.stopPropagation(), setTitle(null))
          }
        />
      </li>
    );
  return (
    <li class={here ? "here" : ""}>
      <a
        href={`/c/${item.id}`}
        aria-current={here ? "page" : undefined}
        onClick={(event) => !event.metaKey && !event.ctrlKey && (event.preventDefault(), onOpen(item.id))}
      >
        <span class="title" dir="auto">
          {harmless(item.title) || "Untitled"}
        </span>
        <small>
          {shortModel(item.model)}
          {item.forked_from ? " · fork" : ""}
        </small>
      </a>
      <span class="actions">
        <IconButton name="edit" label={`Rename ${item.title}`} onClick={() => setTitle(item.title)} />
        <IconButton name="trash" label={`Delete ${item.title}`} onClick={() => onRemove(item)} />
      </span>
    </li>
  );
}

export function Sidebar({
  list,
  search,
  setSearch,
  more,
  here,
  onOpen,
  onNew,
  onRename,
  onRemove,
  onMore,
  onClose,
  workspace,
  version,
}) {
  const groups = [];
  for (const item of list ?? []) {
    const name = when(item.time);
    if (groups.at(-1)?.name !== name) groups.push({ name, items: [] });
    groups.at(-1).items.push(item);
  }
  return (
    <nav class="sidebar" aria-label="Conversations">
      <header>
        <img src="/assets/icon.svg" alt="" width="24" height="24" />
        <strong>dragoman</strong>
        <IconButton name="close" class="narrow-only" label="Close the list" onClick={onClose} />
      </header>
      <button type="button" class="new" onClick={onNew} title="Ctrl+Shift+O">
        <Icon name="plus" /> New conversation
      </button>
      <label class="search">
        <Icon name="search" />
        <input
          id="search"
          type="search"
          value={search}
          placeholder="Search"
          aria-label="Search all conversations"
          onInput={(event) => setSearch(event.target.value)}
        />
      </label>
      <div class="list">
        {list === null && (
          <div class="skeleton" aria-hidden="true">
            <i />
            <i />
            <i />
          </div>
        )}
        {list !== null && !list.length && (
          <p class="aside">{search ? `Nothing has "${search}" in it.` : "What you say is kept here."}</p>
        )}
        {groups.map((group) => (
          <section key={group.name}>
            <h3>{group.name}</h3>
            <ul>
              {group.items.map((item) => (
                <Item
                  key={item.id}
                  item={item}
                  here={item.id === here}
                  onOpen={onOpen}
                  onRename={onRename}
                  onRemove={onRemove}
                />
              ))}
            </ul>
          </section>
        ))}
        {more && (
          <button type="button" class="more" onClick={onMore}>
            Show more
          </button>
        )}
      </div>
      <footer title={workspace}>
        {workspace && (
          <span>
            <bdi>{workspace}</bdi>
          </span>
        )}
        <small>{version}</small>
      </footer>
    </nav>
  );
}
