#include <CLI/CLI.hpp>
#include <cctype>
#include <exception>
#include <new>
#include <string>

#include "base/env.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "cli/command.hpp"

namespace ferry::cli {

namespace {

int exit_code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return kUsage;
    case ErrorCode::kUnavailable:
    case ErrorCode::kNoResource:
    case ErrorCode::kSystem:
    case ErrorCode::kTimeout:
    case ErrorCode::kPeerLost: return kFailed;
    case ErrorCode::kInternal: return kInternal;
  }
  return kInternal;
}

void report(const char* what) { log_line(LogLevel::kError, "cli", what); }

// The parser's own sentences begin with a capital letter.
std::string in_house_style(std::string sentence) {
  if (sentence.size() > 1 && std::isupper(static_cast<unsigned char>(sentence[1])) == 0)
    sentence[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(sentence[0])));
  return sentence;
}

int parse_and_run(int argc, char** argv) {
  CLI::App app("FerryEP: dispatch and combine for mixture-of-experts models", "ferry");
  Invocation invocation;
  invocation.arguments.assign(argv, argv + argc);
  add_commands(app, invocation);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    report(fmt::format("{}; try: ferry --help", in_house_style(error.what())).c_str());
    return kUsage;
  }
  set_log_level(env().log_level);
  return invocation.action();
}

// The one place of the program where errors are caught and turned into words and a code.
int run(int argc, char** argv) noexcept {
  try {
    return parse_and_run(argc, argv);
  } catch (const Error& error) {
    report(error.what());
    return exit_code_of(error.code());
  } catch (const std::bad_alloc&) {
    report("out of memory");
    return kFailed;
  } catch (const std::exception& error) {
    report(error.what());
    return kInternal;
  }
}

}  // namespace

}  // namespace ferry::cli

int main(int argc, char** argv) { return ferry::cli::run(argc, argv); }
