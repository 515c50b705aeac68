// Builds the page into the package: src/dragoman/web/static. `sources.sha256` there says which sources it was built from.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { defineConfig } from "vite";

const OUT = "../src/dragoman/web/static";

function digest() {
  const files = ["index.html", "package.json", "package-lock.json", "vite.config.js"];
  for (const folder of ["src", "public/assets"]) files.push(...readdirSync(folder).map((name) => join(folder, name)));
  const hash = createHash("sha256");
  for (const file of files.sort())
    hash
      .update(file + "\0")
      .update(readFileSync(file))
      .update("\0");
  return hash.digest("hex");
}

export default defineConfig({
  base: "/",
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: OUT,
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    cssCodeSplit: false,
    reportCompressedSize: true,
  },
  plugins: [{ name: "digest", closeBundle: () => writeFileSync(`${OUT}/sources.sha256`, digest() + "\n") }],
});
