"""A folder that stands for a host: the files of /proc, /sys, /etc and /usr that facts are read from."""

import contextlib
import hashlib
import os
import pathlib
import shutil
import subprocess

CC = os.environ.get("CC", "cc")


class Tree:
    def __init__(self, folder, cache):
        self.folder = pathlib.Path(folder)
        self.cache = pathlib.Path(cache)  # compiled libraries, by what they hold
        self.folder.mkdir(parents=True, exist_ok=True)
        self.cache.mkdir(parents=True, exist_ok=True)
        self.undo = None  # while changes are recorded: what takes each one back, the latest last

    @contextlib.contextmanager
    def changed(self, change):
        """The tree with a change, which is taken back at the end: cheaper than a copy of it."""
        self.undo = []
        try:
            change(self)
            yield self
        finally:
            for take_back in reversed(self.undo):
                take_back()
            self.undo = None

    def prepare(self, path):
        """Makes room for a new file at `path`, and remembers what was there."""
        if self.undo is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            return
        missing = path.parent
        while not missing.exists():
            missing = missing.parent
        if missing != path.parent:
            first = missing / path.parent.relative_to(missing).parts[0]
            self.undo.append(lambda: shutil.rmtree(first))
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() or path.is_symlink():
            self.put_aside(path)
        else:
            self.undo.append(lambda: remove_any(path))

    def put_aside(self, path):
        aside = self.cache / f"aside-{len(self.undo)}"
        remove_any(aside)
        path.rename(aside)

        def take_back():
            remove_any(path)
            aside.rename(path)
        self.undo.append(take_back)

    def path(self, name):
        return self.folder / name.lstrip("/")

    def write(self, name, text="\n"):
        path = self.path(name)
        self.prepare(path)
        if isinstance(text, bytes):
            path.write_bytes(text)
        else:
            path.write_text(text if text.endswith("\n") or "\0" in text else text + "\n")

    def write_all(self, folder, **files):
        for name, text in files.items():
            self.write(f"{folder}/{name}", str(text))

    def link(self, name, target):
        """A symbolic link; the last part of `name` is the link, those before it may be links."""
        path = self.path(name)
        self.prepare(path)
        remove_any(path)
        path.symlink_to(target)

    def folder_at(self, name):
        path = self.path(name)
        if not path.exists():
            self.prepare(path)
        path.mkdir(parents=True, exist_ok=True)

    def remove(self, name):
        path = self.path(name)
        if self.undo is None:
            remove_any(path)
        else:
            self.put_aside(path)

    def rename(self, old, new):
        old, new = self.path(old), self.path(new)
        old.rename(new)
        if self.undo is not None:
            self.undo.append(lambda: new.rename(old))

    def read(self, name):
        return self.path(name).read_text()

    def replace(self, name, old, new):
        text = self.read(name)
        assert old in text, f"{name} has no '{old}'"
        self.write(name, text.replace(old, new))

    def names(self, folder):
        path = self.path(folder)
        return sorted(entry.name for entry in path.iterdir()) if path.is_dir() else []

    # ---- the environment of the process -----------------------------------------------------

    def environment(self):
        text = self.read("/proc/self/environ")
        return dict(entry.split("=", 1) for entry in text.split("\0") if entry)

    def set_environment(self, **variables):
        """None removes a variable."""
        merged = self.environment() if self.path("/proc/self/environ").exists() else {}
        merged.update(variables)
        self.write("/proc/self/environ",
                   "".join(f"{k}={v}\0" for k, v in merged.items() if v is not None) or "\0")

    # ---- shared libraries -------------------------------------------------------------------

    def library(self, name, soname="", text=(), tags=(), exports=(), undefined=(), archs=(),
                device_version=None, ibgda=False, glibc=None):
        """A real ELF file, compiled once for each content."""
        source, script = "", ""
        for i, line in enumerate(text):
            source += f'const char text_{i}[] __attribute__((used)) = "{line}";\n'
        for symbol in exports:
            source += f"void {symbol}(void) {{}}\n"
        for i, symbol in enumerate(undefined):
            source += f"extern void {symbol}(void); void use_{i}(void) {{ {symbol}(); }}\n"
        for i, tag in enumerate(tags):
            source += f"void tagged_{i}(void) {{}}\n"
            script += f"{tag} {{ global: tagged_{i}; }};\n"
        if device_version:
            numbers = ", ".join(device_version.split("."))
            source += ("static const int _ZL27nvshmemi_device_lib_version[3] "
                       f"__attribute__((used)) = {{{numbers}}};\n")
        if ibgda:
            source += "int nvshmemi_ibgda_device_state_d[4];\n"
        if archs:
            words = ", ".join(str(byte) for byte in fat_binary(archs))
            source += ('__attribute__((section(".nv_fatbin"), aligned(8), used)) '
                       f"const unsigned char code[] = {{{words}}};\n")
        if glibc:
            source += "extern void newer(void); void needs(void) { newer(); }\n"
        key = hashlib.sha256(f"{source}|{script}|{soname}|{glibc}".encode()).hexdigest()[:16]
        built = self.cache / f"{key}.so"
        if not built.exists():
            compile_library(built, source, script, soname, glibc)
        path = self.path(name)
        self.prepare(path)
        shutil.copy(built, path)


def remove_any(path):
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif path.exists() or path.is_symlink():
        path.unlink()


def compile_library(built, source, script, soname, glibc):
    arguments = [CC, "-shared", "-nostdlib", "-fPIC", "-O0", "-x", "c", "-", "-o", str(built)]
    if soname:
        arguments.append(f"-Wl,-soname,{soname}")
    if script:
        file = built.with_suffix(".map")
        file.write_text(script)
        arguments.append(f"-Wl,--version-script={file}")
    if glibc:
        libc = built.with_suffix(".libc")
        libc.mkdir(exist_ok=True)
        (libc / "map").write_text(f"GLIBC_{glibc} {{ global: newer; }};\n")
        subprocess.run([CC, "-shared", "-nostdlib", "-fPIC", "-x", "c", "-", "-o",
                        str(libc / "libc.so.6"), "-Wl,-soname,libc.so.6",
                        f"-Wl,--version-script={libc / 'map'}"],
                       input="void newer(void) {}", text=True, check=True)
        arguments += ["-x", "none", str(libc / "libc.so.6")]
    subprocess.run(arguments, input=source, text=True, check=True)


def fat_binary(archs):
    """The container that nvcc puts CUDA code into, one empty entry for each architecture."""
    entries = b""
    for arch in archs:
        kind = 1 if arch.startswith("compute_") else 2
        entry = bytearray(64 + 8)
        entry[0:2] = kind.to_bytes(2, "little")
        entry[4:8] = (64).to_bytes(4, "little")
        entry[8:16] = (8).to_bytes(8, "little")
        entry[28:32] = int(arch.split("_")[1]).to_bytes(4, "little")
        entries += entry
    header = (0xBA55ED50).to_bytes(4, "little") + (1).to_bytes(2, "little")
    return header + (16).to_bytes(2, "little") + len(entries).to_bytes(8, "little") + entries
