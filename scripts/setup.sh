# What ./ferry-quickstart and ./ferry-test share: packages, memory, configure and build.
# Sourced by them, with the repository as the working directory. Works on Debian 12 and
# Ubuntu 24.04; elsewhere with --no-install, once the packages below are there in some form.

# The only list of packages. The names are the same on Debian and Ubuntu.
build_packages=(g++ cmake ninja-build pkg-config libfmt-dev libsodium-dev nlohmann-json3-dev
  libcli11-dev libelf-dev libpugixml-dev libre2-dev libyaml-cpp-dev zlib1g-dev)
test_packages=(libgtest-dev libgmock-dev libbenchmark-dev python3 openmpi-bin libopenmpi-dev
  python3-numpy python3-torch python3-venv mypy ccache)
fuzz_packages=(clang)

say() { printf '%s: %s\n' "$program" "$*"; }

die() {
  printf '%s: %s\n' "$program" "$*" >&2
  exit 1
}

usage_error() {
  printf "%s: %s; try: ./%s --help\n" "$program" "$*" "$program" >&2
  exit 2
}

# The end of a log, then the message: what failed stands last.
die_with_log() {
  tail -n 30 "$1" >&2
  die "${*:2}"
}

# ---- packages ---------------------------------------------------------------------------------

is_installed() {
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2> /dev/null)" = installed ]
}

# ensure_packages NAME...: installs what is missing, asking nothing. Needs no root if all is there.
ensure_packages() {
  local package_line='apt-get install -y --no-install-recommends'
  if ! command -v dpkg-query > /dev/null || ! command -v apt-get > /dev/null; then
    die "this system has no apt; install what these Debian packages hold and run again with" \
      "--no-install: $*"
  fi

  local missing=() name
  for name in "$@"; do
    is_installed "$name" || missing+=("$name")
  done
  if [ ${#missing[@]} -eq 0 ]; then
    say "packages are all there"
    return
  fi

  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    # On a terminal sudo may ask for the password; without one it could only hang or fail.
    if command -v sudo > /dev/null && { sudo -n true 2> /dev/null || [ -t 0 ]; }; then
      as_root=(sudo)
    else
      die "packages are missing, and neither root nor sudo is at hand; as root, run:" \
        "$package_line ${missing[*]}"
    fi
  fi

  say "installing ${missing[*]}"
  local log
  log=$(mktemp)
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300)
  # A broken source of someone else's does not matter as long as ours can be installed.
  "${apt[@]}" update > "$log" 2>&1 < /dev/null || true
  if ! "${apt[@]}" install -y --no-install-recommends "${missing[@]}" >> "$log" 2>&1 < /dev/null; then
    die_with_log "$log" "apt-get failed; as root, try: $package_line ${missing[*]}"
  fi
  rm -f "$log"
}

# libFuzzer and the sanitizers' runtimes of the distribution's clang are a package of their own
# from some version on, and part of another one before.
ensure_clang_runtime() {
  local version runtime
  version=$(clang --version | sed -n '1s/.*version \([0-9]*\).*/\1/p')
  runtime=libclang-rt-$version-dev
  if [ -n "$(apt-cache search --names-only "^$runtime\$" 2> /dev/null)" ]; then
    ensure_packages "$runtime"
  fi
}

# ---- this machine -----------------------------------------------------------------------------

# Bytes that may still be used: the system's MemAvailable or what is left of a cgroup limit.
available_memory() {
  local available limit usage path dir
  available=$(($(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo) * 1024))
  while IFS=: read -r _ controllers path; do
    local root max current
    case ",$controllers," in
      ,,) root=/sys/fs/cgroup max=memory.max current=memory.current ;;
      *,memory,*)
        root=/sys/fs/cgroup/memory max=memory.limit_in_bytes current=memory.usage_in_bytes
        ;;
      *) continue ;;
    esac
    # A limit binds all groups below it. Inside a container the path may not exist: then the root
    # that is visible is the container's own.
    dir=$root${path%/}
    [ -d "$dir" ] || dir=$root
    while [ "${dir#"$root"}" != "$dir" ]; do
      if [ -r "$dir/$max" ] && [ -r "$dir/$current" ]; then
        limit=$(cat "$dir/$max")
        if [ "$limit" != max ] && [ ${#limit} -lt 18 ]; then
          # Page cache counts as usage, and is given back on demand.
          usage=$(cat "$dir/$current")
          usage=$((usage - $(awk '$1 == "inactive_file" { print $2 }' "$dir/memory.stat" || echo 0)))
          [ $((limit - usage)) -ge "$available" ] || available=$((limit - usage))
        fi
      fi
      dir=${dir%/*}
    done
  done < /proc/self/cgroup
  [ "$available" -gt 0 ] || available=0
  echo "$available"
}

# As many compilers as cores, and as memory allows at 1.5 GB each.
num_jobs() {
  local cores by_memory
  cores=$(nproc)
  by_memory=$(($(available_memory) / 1500000000))
  [ "$by_memory" -ge 1 ] || by_memory=1
  [ "$cores" -le "$by_memory" ] && echo "$cores" || echo "$by_memory"
}

# The name of a GPU of this machine, or nothing.
gpu_name() {
  local file
  for file in /proc/driver/nvidia/gpus/*/information; do
    [ -r "$file" ] && sed -n 's/^Model:[[:space:]]*//p' "$file" | head -n 1 && return
  done
  [ ! -e /proc/driver/nvidia/version ] || echo "an NVIDIA GPU"
}

# ---- build ------------------------------------------------------------------------------------

# configure DIR CMAKE_ARGUMENT...
configure() {
  local dir=$1 generator
  shift
  if [ -f "$dir/CMakeCache.txt" ]; then
    generator=$(sed -n 's/^CMAKE_GENERATOR:INTERNAL=//p' "$dir/CMakeCache.txt")
    if [ "$generator" != Ninja ] || ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD" \
      "$dir/CMakeCache.txt"; then
      die "$dir/ was configured elsewhere or with another generator ('$generator');" \
        "try: rm -r $dir"
    fi
  fi
  mkdir -p "$dir" || die "cannot write to $dir/ in $PWD"
  cmake -S . -B "$dir" -G Ninja "$@" > "$dir/configure.log" 2>&1 ||
    die_with_log "$dir/configure.log" "configuring $dir/ failed, see $dir/configure.log"
}

# build DIR [TARGET...]
build() {
  local dir=$1 started=$SECONDS quiet=(--quiet)
  shift
  [ ! -t 1 ] || quiet=()  # on a terminal, ninja's one line of progress
  say "building $dir/"
  ninja -C "$dir" -j "$(num_jobs)" "${quiet[@]}" "$@" || die "building $dir/ failed"
  say "built $dir/ in $((SECONDS - started)) s"
}
