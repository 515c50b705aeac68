// The page: a list of conversations, one of them, and what can be said in it.
import { render } from "preact";
import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { api, follow, Refused, ServerGone } from "./api.js";
import { Composer } from "./composer.jsx";
import { Dialogs } from "./dialogs.jsx";
import { after, nothing } from "./live.js";
import { IconButton, Notice } from "./parts.jsx";
import { Sidebar } from "./sidebar.jsx";
import "./style.css";
import { Talk } from "./talk.jsx";
import { dollars, harmless, tokens } from "./text.js";
import { Trace } from "./trace.jsx";

const EMPTY = { text: "", files: [] };
const idOf = () => /^\/c\/([0-9a-f-]{36})$/.exec(location.pathname)?.[1] ?? null;
/** Whether this message is what was written in the draft. */
const says = (message, draft) =>
  message.role === "user" &&
  message.blocks
    .filter((block) => block.type === "text")
    .map((block) => block.text)
    .join("") === draft.text;
/** The draft as a message, until the server has it. */
const shown = (draft) => ({
  role: "user",
  blocks: [
    ...draft.files.map((file) => ({
      type: "media",
      kind: "document",
      name: file.name,
      size: file.size,
      image: Boolean(file.preview),
      url: file.preview ?? "#",
    })),
    ...(draft.text ? [{ type: "text", text: draft.text }] : []),
  ],
});
const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

function useConversations() {
  const [search, setSearch] = useState("");
  const [list, setList] = useState(null);
  const [cursor, setCursor] = useState(null);
  const wanted = useRef("");
  const load = useCallback(async (more) => {
    const asked = wanted.current;
    try {
      const found = await api.list(asked, more);
      if (asked !== wanted.current) return;
      setList((before) => (more ? [...(before ?? []), ...found.conversations] : found.conversations));
      setCursor(found.cursor);
    } catch (error) {
      if (!(error instanceof ServerGone)) setList((before) => before ?? []);
    }
  }, []);
  useEffect(() => {
    wanted.current = search;
    const timer = setTimeout(load, search ? 200 : 0);
    return () => clearTimeout(timer);
  }, [search]);
  return { search, setSearch, list, cursor, load };
}

function App() {
  const [about, setAbout] = useState(null);
  const [id, setId] = useState(idOf);
  const [talk, setTalk] = useState(null);
  const [live, setLive] = useState(null);
  const [draft, setDraft] = useState(EMPTY);
  const [problem, setProblem] = useState("");
  const [gone, setGone] = useState(false);
  const [status, setStatus] = useState("");
  const [model, setModel] = useState(null);
  const [dialog, setDialog] = useState(null);
  const [menu, setMenu] = useState(false);
  const [trace, setTrace] = useState(false);
  const [turns, setTurns] = useState(0);
  const conversations = useConversations();
  const current = useRef(id);
  current.current = id;
  const leave = useRef(() => {});
  const loading = useRef(null);
  const sent = useRef(null);
  const halted = useRef(false);
  const latest = useRef(null);
  latest.current = talk;

  const fail = useCallback((error) => {
    if (error instanceof ServerGone) setGone(true);
    else setProblem(error.message);
    return false;
  }, []);

  // What could not be said goes back to where it was written, before what was written since.
  const giveBack = useCallback((said) => {
    setDraft((since) => ({
      text: [said.text, since.text].filter(Boolean).join("\n"),
      files: [...said.files, ...since.files],
    }));
  }, []);

  // --- looking at a conversation ---

  const watch = useCallback((which, base, said) => {
    leave.current();
    setLive(nothing(base, said));
    setStatus("The model is answering.");
    leave.current = follow(
      which,
      (events) => current.current === which && setLive((state) => (state ? after(state, events) : state)),
      async (ended) => {
        if (current.current !== which) return;
        const found = await load(which, true);
        if (current.current !== which) return;
        if (ended?.error) setProblem(ended.error.message);
        else if (ended?.ending === "no_answer") setProblem(ended.note);
        // A turn that failed before anything was said leaves no trace.
        if (sent.current?.to === which && found && !found.live) {
          const mine = sent.current.draft;
          sent.current = null;
          if (!found.messages.some((message) => message.index >= base && says(message, mine))) giveBack(mine);
        }
        conversations.load();
        setTurns((number) => number + 1);
      },
      (state) => setGone(state === "gone"),
    );
  }, []);

  const read = useCallback(async (which, over) => {
    try {
      const found = await api.show(which);
      if (current.current !== which) return;
      setTalk(found);
      setGone(false);
      if (found.live) {
        if (!found.live.complete)
          setProblem("This answer is too long to be followed from its beginning; it is shown when it is complete.");
        watch(which, found.live.base, found.live.said);
      } else {
        if (over) setStatus(found.pending.length ? "A tool waits for your approval." : "The answer is complete.");
        setLive(null);
      }
      return found;
    } catch (error) {
      if (error instanceof Refused && error.status >= 400 && current.current === which) {
        setLive(null);
        setTalk({ missing: true, messages: [], pending: [], first: 0 });
      }
      fail(error);
    }
  }, []);
  const load = useCallback((which, over) => (loading.current = read(which, over)), []);

  const open = useCallback((which, quietly) => {
    leave.current();
    current.current = which;
    if (!quietly) history.pushState(null, "", which ? `/c/${which}` : "/");
    setId(which);
    setTalk(null);
    setLive(null);
    setProblem("");
    setMenu(false);
    setStatus("");
    if (which) load(which);
    document.getElementById("composer")?.focus();
  }, []);

  useLayoutEffect(() => {
    api.about().then(setAbout, fail);
    if (id) load(id);
    const back = () => open(idOf(), true);
    addEventListener("popstate", back);
    return () => removeEventListener("popstate", back);
  }, []);

  useEffect(() => {
    document.title = talk?.title ? `${talk.title} – dragoman` : "dragoman";
  }, [talk?.title]);

  // A server that is gone is asked again and again, more and more rarely.
  useEffect(() => {
    if (!gone) return;
    let here = true;
    (async () => {
      for (let wait = 500; here; wait = Math.min(wait * 1.5, 8000)) {
        await pause(wait);
        if (!here) return;
        try {
          setAbout(await api.about());
          if (!here) return;
          setGone(false);
          conversations.load();
          if (current.current) load(current.current);
          return;
        } catch (error) {
          if (!(error instanceof ServerGone)) return (setGone(false), fail(error)); // it is back, and another one
        }
      }
    })();
    return () => (here = false);
  }, [gone]);

  // --- saying something ---

  const files = (given) => given.files.map(({ name, type, data }) => ({ name, type, data }));

  const send = async (said) => {
    setProblem("");
    halted.current = false;
    const body = { text: said.text, files: files(said) };
    const giveUp = () => {
      giveBack(said);
      if (current.current === id) setLive(null);
    };
    let base = talk?.count ?? 0;
    setDraft(EMPTY);
    setLive(nothing(base, shown(said)));
    try {
      if (id && !talk) {
        const found = await loading.current; // what is said before the conversation has come waits for it
        if (found?.live) return giveBack(said);
        if (!found || halted.current) return giveUp();
        base = found.count;
        setLive(nothing(base, shown(said)));
      }
      if (id) {
        await api.say(id, body);
        sent.current = { to: id, draft: said };
        if (current.current !== id) return; // another conversation was opened meanwhile
        watch(id, base, shown(said));
      } else {
        const chosen = model ?? about?.model; // the server knows its own, until it has told
        const { id: made } = await api.begin({ ...body, model: chosen });
        sent.current = { to: made, draft: said };
        if (current.current !== id) return conversations.load();
        history.pushState(null, "", `/c/${made}`);
        current.current = made;
        setId(made);
        setTalk({ id: made, title: "", model: chosen, messages: [], pending: [], first: 0, count: 0 });
        watch(made, 0, shown(said));
      }
      if (halted.current) stop();
    } catch (error) {
      giveUp();
      fail(error);
    }
  };

  const answer = useCallback(async (given) => {
    setProblem("");
    setLive(nothing(latest.current?.count ?? 0, null));
    try {
      await api.answer(current.current, [given]);
    } catch (error) {
      fail(error);
    }
    await load(current.current); // which goes on watching, or shows what else waits
  }, []);

  const fork = useCallback(async (said) => {
    try {
      const { id: made } = await api.fork(current.current, said);
      open(made);
      return true;
    } catch (error) {
      return fail(error);
    }
  }, []);

  const stop = useCallback(() => {
    setStatus("Stopping.");
    halted.current = true; // for a turn that has not begun yet
    if (current.current) api.stop(current.current).catch(fail);
  }, []);

  const goOn = async () => {
    setProblem("");
    setLive(nothing(talk.count, null));
    try {
      await api.say(id, { go_on: true });
      if (current.current !== id) return;
      watch(id, talk.count, null);
    } catch (error) {
      setLive(null);
      fail(error);
    }
  };

  const choose = async (name) => {
    if (!id) return (setModel(name), setDialog(null));
    try {
      const { losses, model: full } = await api.model(id, name, true);
      setDialog({ kind: "switch", model: full, wanted: name, losses });
    } catch (error) {
      setDialog({ kind: "model", problem: error.message });
    }
  };
  const change = async (name) => {
    try {
      await api.model(id, name, false);
      setDialog(null);
      load(id);
    } catch (error) {
      setDialog({ kind: "model", problem: error.message });
    }
  };

  const remove = async (which) => {
    try {
      await api.remove(which);
      setDialog(null);
      conversations.load();
      if (which === id) open(null);
    } catch (error) {
      fail(error);
    }
  };

  const busy = live !== null;
  // The keys are heard before the page is seen: an effect after the first drawing would lose those of the quick.
  useLayoutEffect(() => {
    const key = (event) => {
      const control = event.ctrlKey || event.metaKey;
      if (event.key === "Escape" && busy && !document.querySelector("dialog[open]")) stop();
      else if (control && event.key.toLowerCase() === "k") {
        event.preventDefault();
        setMenu(true);
        queueMicrotask(() => document.getElementById("search")?.focus()); // drawn by then, and no key is between
      } else if (control && event.shiftKey && event.key.toLowerCase() === "o") {
        event.preventDefault();
        open(null);
      } else if (event.key === "/" && !/^(INPUT|TEXTAREA)$/.test(document.activeElement?.tagName)) {
        event.preventDefault();
        document.getElementById("composer")?.focus();
      }
    };
    addEventListener("keydown", key);
    return () => removeEventListener("keydown", key);
  }, [busy]);

  const shownModel = (id ? talk?.model : model) ?? about?.model ?? "";
  const last = talk?.messages.at(-1);
  const canGoOn =
    id &&
    talk &&
    !busy &&
    !talk.missing &&
    last &&
    (last.role === "tool" || last.role === "user") &&
    !talk.pending.length;

  return (
    <div class={`app ${menu ? "menu-open" : ""} ${trace && id ? "with-trace" : ""}`}>
      <a class="skip" href="#composer">
        To the message field
      </a>
      <Sidebar
        {...conversations}
        list={conversations.list}
        more={conversations.cursor}
        here={id}
        version={about ? `dragoman ${about.version}` : ""}
        workspace={about?.workspace}
        onOpen={open}
        onNew={() => open(null)}
        onClose={() => setMenu(false)}
        onMore={() => conversations.load(conversations.cursor)}
        onRename={(which, title) =>
          api.rename(which, title).then(() => (conversations.load(), which === id && load(id)), fail)
        }
        onRemove={(item) => setDialog({ kind: "remove", item })}
      />
      <div class="shade" onClick={() => setMenu(false)} />
      <main>
        <header class="top">
          <IconButton
            name="menu"
            class="narrow-only"
            label="Conversations"
            aria-expanded={menu}
            onClick={() => setMenu(true)}
          />
          <h1 dir="auto" class={id ? "" : "aside"}>
            {id ? (talk?.missing ? "Not found" : harmless(talk?.title ?? "")) : "New conversation"}
          </h1>
          {talk?.usage && (
            <small class="usage" title="Tokens and cost of the whole conversation">
              {[tokens(talk.usage), dollars(talk.cost)].filter(Boolean).join(" · ")}
            </small>
          )}
          {id && talk && !talk.missing && (
            <>
              <IconButton
                name="timeline"
                label="Timeline of the turns"
                aria-pressed={trace}
                onClick={() => setTrace(!trace)}
              />
              <IconButton name="export" label="Export" onClick={() => setDialog({ kind: "export" })} />
            </>
          )}
        </header>
        {gone && (
          <Notice kind="warning">The server does not answer. Trying again; what you have written stays here.</Notice>
        )}
        <Talk
          key={id ?? "new"}
          talk={talk}
          live={live}
          id={id}
          about={about}
          model={shownModel}
          onAnswer={answer}
          onFork={fork}
          busy={busy}
          onExample={(text) => (setDraft({ text, files: [] }), document.getElementById("composer")?.focus())}
          setTalk={setTalk}
          onProblem={fail}
        />
        <div class="bottom">
          {problem && (
            <Notice action={<IconButton name="close" label="Dismiss" onClick={() => setProblem("")} />}>
              {problem}
            </Notice>
          )}
          {canGoOn && (
            <button type="button" class="go-on" onClick={goOn}>
              Let the model go on
            </button>
          )}
          <Composer
            draft={draft}
            setDraft={setDraft}
            busy={busy}
            disabled={gone || talk?.missing}
            limit={about?.max_upload_bytes ?? Infinity}
            onSend={send}
            onStop={stop}
            onProblem={setProblem}
            model={shownModel}
            onModel={() => setDialog({ kind: "model" })}
          />
        </div>
        <p class="status" role="status">
          {status}
        </p>
      </main>
      {trace && id && (
        <Trace
          id={id}
          version={turns}
          onClose={() => setTrace(false)}
          onShow={(index) => document.querySelector(`[data-index="${index}"]`)?.scrollIntoView({ block: "center" })}
        />
      )}
      <Dialogs
        dialog={dialog}
        onClose={() => setDialog(null)}
        about={about}
        model={shownModel}
        id={id}
        onChoose={choose}
        onChange={change}
        onRemove={remove}
      />
    </div>
  );
}

render(<App />, document.getElementById("app"));
