#include "ferry/ferry.h"

/* Uses one inline function of each kind; compiling it is the test. */
int header_alone(const float* rows) {
  const int64_t shape[2] = {4, 64};
  ferry_exchange_config config = {.struct_bytes = sizeof config, .num_experts = 8};
  ferry_route_options options;
  ferry_tensor tensor = ferry_tensor_dense(rows, FERRY_DTYPE_FP32, 2, shape);
  ferry_route_options_init(&options);
  return config.num_experts + options.sizing + tensor.num_dims;
}
