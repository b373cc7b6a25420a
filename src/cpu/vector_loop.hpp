#pragma once

// FERRY_VECTOR_LOOP marks a function whose plain loops are compiled several times, for AVX-512,
// AVX2 and the baseline, and chosen when the program is loaded. All versions give the same bits: no
// sum is reordered and -ffp-contract=off forbids fused operations. FERRY_INLINE_LOOP marks what
// such a function calls, so that it is compiled with it.
//
// Not under sanitizers: the choice runs before their runtime is set up, and crashes. Not with
// clang, whose target_clones lacks arch=. Other processors build the plain version, which
// vectorises for their baseline.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define FERRY_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FERRY_SANITIZED 1
#endif

#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__) && \
    !defined(FERRY_SANITIZED)
#define FERRY_VECTOR_LOOP \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FERRY_VECTOR_LOOP
#endif
#define FERRY_INLINE_LOOP inline __attribute__((always_inline))
