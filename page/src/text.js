// From what a model said to what is shown. Nothing of it ever runs: Markdown becomes HTML, a library takes out of it
// whatever is more than text, and pictures of other hosts are links.
import DOMPurify from "dompurify";
import hljs from "highlight.js/lib/core";
import bash from "highlight.js/lib/languages/bash";
import c from "highlight.js/lib/languages/c";
import cpp from "highlight.js/lib/languages/cpp";
import css from "highlight.js/lib/languages/css";
import diff from "highlight.js/lib/languages/diff";
import go from "highlight.js/lib/languages/go";
import ini from "highlight.js/lib/languages/ini";
import java from "highlight.js/lib/languages/java";
import javascript from "highlight.js/lib/languages/javascript";
import json from "highlight.js/lib/languages/json";
import markdown from "highlight.js/lib/languages/markdown";
import python from "highlight.js/lib/languages/python";
import rust from "highlight.js/lib/languages/rust";
import shell from "highlight.js/lib/languages/shell";
import sql from "highlight.js/lib/languages/sql";
import typescript from "highlight.js/lib/languages/typescript";
import xml from "highlight.js/lib/languages/xml";
import yaml from "highlight.js/lib/languages/yaml";
import { Marked } from "marked";

const languages = {
  bash,
  c,
  cpp,
  css,
  diff,
  go,
  ini,
  java,
  javascript,
  json,
  markdown,
  python,
  rust,
  shell,
  sql,
  typescript,
  xml,
  yaml,
};
for (const [name, language] of Object.entries(languages)) hljs.registerLanguage(name, language);

const LONGEST_HIGHLIGHTED = 50_000;

const HIDING =
  /[\u202a-\u202e\u2066-\u2069\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u{e0000}-\u{e007f}]/gu;
const UNSEEN = /[\u200b-\u200f\u2060-\u2064\u061c\u00ad\ufeff]/gu;
const named = (sign) => `\u27e8U+${sign.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}\u27e9`;

/** The text with what could turn it around, or hide in it, made visible. */
export const harmless = (text) => text.replace(HIDING, named);

/** The same for names, rules and arguments, where a sign that nobody sees makes another word. */
export const exact = (text) => harmless(text).replace(UNSEEN, named);

const escaped = (text) =>
  text.replace(/[&<>"']/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" })[sign]);

/** The host of a web address; "" of anything else. */
export const hostOf = (address) => {
  try {
    const url = new URL(address);
    return ["http:", "https:"].includes(url.protocol) ? url.host : "";
  } catch {
    return "";
  }
};

const ADDRESSES =
  /https?:\/\/[^\s/?#)\]},;"'<>]+\S*|[\p{L}\p{N}_-]+(?:[.\u3002][\p{L}\p{N}_-]+)*[.\u3002]\p{L}{2,}\S*/giu;
const bare = (host) => host.replace(/^www\.|\.$/g, "");

/** Whether what is seen of a link names a host, anywhere, that is not this one. */
function claimsAnother(inner, host) {
  const { textContent } = DOMPurify.sanitize(inner, { RETURN_DOM_FRAGMENT: true });
  const seen = textContent.normalize("NFKC").replace(UNSEEN, "");
  const addresses = (seen.match(ADDRESSES) ?? []).map((each) => each.split("@")[0]);
  return addresses.some((each) => bare(hostOf(each.replace(/^(?!https?:)/i, "https://"))) !== bare(host));
}

/** A link that says where it leads when its text claims to be another address. */
function link(href, inner) {
  const host = hostOf(href);
  if (!host && !/^mailto:/i.test(href)) return inner;
  const told = host && claimsAnother(inner, host) ? ` <span class="leads-to">(${escaped(host)})</span>` : "";
  return `<a href="${escaped(href)}" title="${escaped(href)}">${inner}</a>${told}`;
}

const marked = new Marked({
  gfm: true,
  breaks: true,
  renderer: {
    html: ({ text }) => escaped(text),
    code({ text, lang }) {
      const name = (lang ?? "").trim().split(/\s/)[0].toLowerCase();
      const known = name && hljs.getLanguage(name) && text.length < LONGEST_HIGHLIGHTED;
      const body = known ? hljs.highlight(text, { language: name, ignoreIllegals: true }).value : escaped(text);
      return `<pre class="language-${escaped(name)}"><code>${body}\n</code></pre>`;
    },
    link({ href, tokens }) {
      return link(href, this.parser.parseInline(tokens));
    },
    image({ href, text }) {
      return link(href, escaped(`[image: ${text || href}]`));
    },
    checkbox: ({ checked }) => (checked ? "\u2611 " : "\u2610 "),
  },
});

DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName === "A") {
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer nofollow");
  }
});

const RULES = {
  RETURN_TRUSTED_TYPE: true,
  ALLOWED_TAGS: [
    ..."a b blockquote br code del em h1 h2 h3 h4 h5 h6 hr i li ol p pre s span strong sub sup".split(" "),
    ..."table tbody td th thead tr ul".split(" "),
  ],
  ALLOWED_ATTR: ["href", "title", "class", "align", "start"],
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
};

// Such runs say nothing, and take the library minutes, or more stack than there is.
const ABSURD = /(?:^|\n)(?:[>\s]{1000}|[ \t]{1000})|_{1000}|\*{1000}|~{1000}|\[{1000}/;

/** Markdown as HTML that can only be looked at; what cannot be read as such stands as it is. */
export function toHtml(text) {
  const shown = harmless(text);
  let html = `<pre>${escaped(shown)}</pre>`;
  try {
    if (!ABSURD.test(shown)) html = marked.parse(shown);
  } catch {
    // too deep
  }
  return DOMPurify.sanitize(html, RULES);
}

const JSON_TOKENS = /"(?:[^"\\]+|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;
const DEEPEST = 100;

/** JSON in several lines, token by token, since numbers can be longer and keys come twice; other text as it is. */
export function pretty(text) {
  try {
    JSON.parse(text);
  } catch {
    return exact(text || "{}");
  }
  let [shown, before, depth] = ["", "", 0];
  for (const token of text.match(JSON_TOKENS)) {
    const closes = token === "}" || token === "]";
    const opened = before === "{" || before === "[";
    if (closes) depth -= 1;
    if (before === "," || closes !== opened) shown += `\n${"  ".repeat(depth)}`;
    if (token === "{" || token === "[") depth += 1;
    if (depth > DEEPEST) return exact(text);
    shown += token[0] === '"' ? JSON.stringify(JSON.parse(token)) : token === ":" ? ": " : token;
    before = token;
  }
  return exact(shown);
}

export const seconds = (value) =>
  value === null || value === undefined
    ? ""
    : value < 0.095
      ? `${Math.round(value * 1000)} ms`
      : value < 60
        ? `${value.toFixed(1)} s`
        : `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;

export const count = (value) => (value ?? 0).toLocaleString("en");

export const size = (bytes) =>
  bytes < 1024
    ? `${bytes} B`
    : bytes < 1024 * 1024
      ? `${Math.round(bytes / 1024)} kB`
      : `${(bytes / 1024 / 1024).toFixed(1)} MB`;

export const tokens = (usage) =>
  usage && (usage.input !== undefined || usage.output !== undefined)
    ? `${count(usage.input)} in \u00b7 ${count(usage.output)} out`
    : "";

/** US dollars, with as many digits as say something; nothing where nobody knows. */
export const dollars = (cost) =>
  cost == null ? "" : cost >= 1 ? `$${cost.toFixed(2)}` : cost === 0 ? "$0" : `$${cost.toPrecision(2)}`;

export const shortModel = (name) => (name ?? "").replace(/^[^:]*:/, "");

export function when(time) {
  const then = new Date(time);
  const now = new Date();
  const days = Math.floor((new Date(now.toDateString()) - new Date(then.toDateString())) / 86_400_000);
  if (days <= 0) return "Today";
  if (days === 1) return "Yesterday";
  if (days < 7) return "This week";
  if (days < 31) return "This month";
  return then.toLocaleDateString("en", { month: "long", year: "numeric" });
}
