// One mixture-of-experts step in C: tokens travel to their experts and the results come back.
//
//   ./exchange                  four ranks, each a thread of this process
//   mpirun -n 4 ./exchange      one rank per process; srun and torchrun work likewise

#include <ferry/ferry.h>
#include <stdio.h>
#include <stdlib.h>

enum { kExpertsPerRank = 2, kTopK = 2, kHidden = 64, kTokens = 5, kWrongResult = 100 };

// Our "expert" e multiplies its tokens by e + 1. A real one is a small neural network.
static float factor_of(int64_t expert) { return (float)(expert + 1); }

static ferry_tensor matrix(const void* data, ferry_dtype dtype, int64_t rows, int64_t columns) {
  const int64_t shape[2] = {rows, columns};
  return ferry_tensor_dense(data, dtype, 2, shape);
}

// Computes on the rows of this rank's experts, where they arrived.
static ferry_status apply_experts(int32_t rank, const ferry_delivery* in, ferry_tensor* tokens) {
  ferry_tensor counts, offsets;
  ferry_status status;
  ferry_tensor_init(&counts);
  ferry_tensor_init(&offsets);
  ferry_tensor_init(tokens);
  if ((status = ferry_delivery_tokens(in, tokens)) ||
      (status = ferry_delivery_expert_counts(in, &counts)) ||
      (status = ferry_delivery_expert_offsets(in, &offsets)))
    return status;
  for (int local = 0; local < kExpertsPerRank; ++local) {
    float* values = (float*)tokens->data + ((int64_t*)offsets.data)[local] * kHidden;
    for (int64_t i = 0; i < ((int64_t*)counts.data)[local] * kHidden; ++i)
      values[i] *= factor_of(rank * kExpertsPerRank + local);
  }
  return FERRY_OK;
}

// What each rank does.
static ferry_status run_rank(ferry_group* group, void* user) {
  int32_t rank = 0, size = 0;
  int64_t topk_idx[kTokens * kTopK], num_rows = 0;
  float topk_weights[kTokens * kTopK], x[kTokens * kHidden], out[kTokens * kHidden];
  ferry_exchange* exchange = NULL;
  ferry_route* route = NULL;
  ferry_delivery* in = NULL;
  ferry_tensor y;
  ferry_status status;
  (void)user;
  if ((status = ferry_group_rank(group, &rank)) || (status = ferry_group_size(group, &size)))
    return status;

  // The router's choice: the experts of each token and how much each counts.
  for (int token = 0; token < kTokens; ++token) {
    for (int k = 0; k < kTopK; ++k) {
      topk_idx[token * kTopK + k] = (rank + token + k) % (kExpertsPerRank * size);
      topk_weights[token * kTopK + k] = k == 0 ? 0.75f : 0.25f;
    }
    for (int i = 0; i < kHidden; ++i) x[token * kHidden + i] = (float)(100 * rank + token);
  }
  const ferry_tensor ids = matrix(topk_idx, FERRY_DTYPE_INT64, kTokens, kTopK);
  const ferry_tensor weights = matrix(topk_weights, FERRY_DTYPE_FP32, kTokens, kTopK);
  const ferry_tensor x_view = matrix(x, FERRY_DTYPE_FP32, kTokens, kHidden);
  const ferry_tensor out_view = matrix(out, FERRY_DTYPE_FP32, kTokens, kHidden);

  // The same on every rank; what is not named takes its default.
  const ferry_exchange_config config = {.struct_bytes = sizeof config,
                                        .num_experts = kExpertsPerRank * size,
                                        .top_k = kTopK,
                                        .hidden = kHidden,
                                        .max_tokens = kTokens,
                                        .dtype = FERRY_DTYPE_FP32,
                                        .layout = FERRY_LAYOUT_BY_EXPERT};
  const ferry_combine_options weighted = {.struct_bytes = sizeof weighted,
                                          .topk_weights = &weights};

  // Plan once for this batch, send the tokens, compute in place, bring the weighted sums back.
  // The first failure ends the chain.
  if (!(status = ferry_exchange_create(group, &config, &exchange)) &&
      !(status = ferry_exchange_route(exchange, &ids, NULL, NULL, &route)) &&
      !(status = ferry_exchange_dispatch(exchange, route, &x_view, NULL, NULL, &in)) &&
      !(status = apply_experts(rank, in, &y)) &&
      !(status = ferry_exchange_combine(exchange, route, &y, &out_view, &weighted, NULL)) &&
      !(status = ferry_route_num_recv_rows(route, &num_rows))) {
    // All numbers here are exact in fp32, so the check is for equality.
    int num_wrong = 0;
    for (int token = 0; token < kTokens; ++token) {
      float factor = 0;
      for (int k = token * kTopK; k < (token + 1) * kTopK; ++k)
        factor += topk_weights[k] * factor_of(topk_idx[k]);
      for (int i = token * kHidden; i < (token + 1) * kHidden; ++i)
        num_wrong += out[i] != factor * x[i];
    }
    printf("rank %d of %d: sent %d tokens, computed %lld rows, %s\n", (int)rank, (int)size, kTokens,
           (long long)num_rows, num_wrong == 0 ? "result correct" : "result WRONG");
    if (num_wrong != 0) status = kWrongResult;
  }
  ferry_delivery_free(in);
  ferry_route_free(route);
  ferry_exchange_free(exchange);
  return status;
}

// Joins the group of the launcher, which tells its processes their rank in a variable.
static ferry_status run_launched(void) {
  ferry_group* group = NULL;
  ferry_status status = ferry_group_from_env(&group);
  if (status == FERRY_OK) status = run_rank(group, NULL);
  ferry_group_free(group);
  return status;
}

int main(void) {
  const ferry_status status =
      ferry_group_is_launched() ? run_launched() : ferry_group_run_threads(4, NULL, run_rank, NULL);
  if (status == FERRY_OK) return EXIT_SUCCESS;
  if (status != kWrongResult)
    fprintf(stderr, "%s: %s\n", ferry_status_name(status), ferry_last_error());
  return EXIT_FAILURE;
}
