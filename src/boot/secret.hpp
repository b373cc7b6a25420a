#pragma once

#include <string>

#include "base/env.hpp"

namespace ferry::boot {

// How to make a secret, as advice in messages.
inline constexpr const char* kMakeSecretAdvice =
    "(umask 077; head -c 32 /dev/urandom | base64 > ferry.secret), copy the file to every host, "
    "FERRY_SECRET_FILE=ferry.secret";

// The secret of FERRY_SECRET_FILE, or of FERRY_SECRET; empty where neither is set. The file must be
// a regular file of this user that nobody else can read or write. Its text is taken without white
// space at the end. Throws kInvalidArgument naming the file; never prints the secret.
[[nodiscard]] std::string read_secret(const Env& env);

}  // namespace ferry::boot
