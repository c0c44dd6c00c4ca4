import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { join, relative } from "node:path";
import { defineConfig } from "vitest/config";
import type { Plugin } from "vite";

const here = fileURLToPath(new URL(".", import.meta.url));
const SOURCES = ["index.html", "package-lock.json", "package.json", "tsconfig.json", "vite.config.ts"];

/** SHA-256 of the names and contents of what the page is built from; tests compute it too. */
function sourcesDigest(): string {
  const inner = readdirSync(join(here, "src"), { recursive: true, withFileTypes: true })
    .filter((x) => x.isFile())
    .map((x) => relative(here, join(x.parentPath, x.name)));
  const digest = createHash("sha256");
  for (const name of [...SOURCES, ...inner].sort()) {
    digest.update(name + "\0").update(readFileSync(join(here, name))).update("\0");
  }
  return digest.digest("hex");
}

const sha256 = (text: string) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;

/** Script and style go into the page, and a policy that allows these two alone. */
function singlePage(): Plugin {
  return {
    name: "single-page",
    enforce: "post",
    generateBundle(_, bundle) {
      let html = "", script = "", style = "";
      for (const [name, file] of Object.entries(bundle)) {
        if (file.type === "chunk") script += file.code;
        else if (name.endsWith(".css")) style += file.source;
        else if (name.endsWith(".html")) html = String(file.source);
        delete bundle[name];
      }
      script = script.trim().replaceAll("</script", "<\\/script");
      const policy = [
        "default-src 'none'", `script-src ${sha256(script)}`, `style-src ${sha256(style)}`,
        "img-src data:", "connect-src 'self'", "base-uri 'none'", "form-action 'none'",
      ].join("; ");
      html = html
        .replace(/\s*<script type="module"[^>]*><\/script>/, "")
        .replace(/\s*<link rel="stylesheet"[^>]*>/, "")
        .replace('<meta charset="utf-8">', (x) =>
          `${x}\n    <meta http-equiv="Content-Security-Policy" content="${policy}">` +
          `\n    <meta name="sources" content="${sourcesDigest()}">`)
        .replace("</head>", () => `<style>${style}</style>\n  </head>`)
        .replace("</body>", () => `<script type="module">${script}</script>\n  </body>`);
      this.emitFile({ type: "asset", fileName: "page.html", source: html });
    },
  };
}

export default defineConfig({
  plugins: [singlePage()],
  build: {
    outDir: "../agentrl_jax/viewer",
    emptyOutDir: false,
    target: "es2022",
    cssTarget: ["chrome123", "firefox120", "safari17.5"],
    modulePreload: false,
    cssCodeSplit: false,
  },
  test: {
    projects: [
      { test: { name: "unit", include: ["tests/unit/*.test.ts"] } },
      {
        test: {
          name: "browser", include: ["tests/browser/*.test.ts"],
          testTimeout: 120_000, hookTimeout: 120_000, fileParallelism: false,
          expect: { poll: { timeout: 20_000 } },
        },
      },
    ],
  },
});
