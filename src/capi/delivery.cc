#include "capi/guard.hpp"
#include "capi/handles.hpp"
#include "capi/tensor.hpp"

using namespace ferry::capi;

ferry_status ferry_delivery_tokens(const ferry_delivery* delivery, ferry_tensor* out_tensor) {
  return guard(__func__, {FERRY_REQUIRED(delivery), FERRY_REQUIRED(out_tensor)},
               [&] { write_tensor(delivery->delivery.tokens(), out_tensor); });
}

ferry_status ferry_delivery_scales(const ferry_delivery* delivery, ferry_tensor* out_tensor) {
  return guard(__func__, {FERRY_REQUIRED(delivery), FERRY_REQUIRED(out_tensor)},
               [&] { write_tensor(delivery->delivery.scales(), out_tensor); });
}

ferry_status ferry_delivery_topk_idx(const ferry_delivery* delivery, ferry_tensor* out_tensor) {
  return guard(__func__, {FERRY_REQUIRED(delivery), FERRY_REQUIRED(out_tensor)},
               [&] { write_tensor(delivery->delivery.topk_idx(), out_tensor); });
}

ferry_status ferry_delivery_topk_weights(const ferry_delivery* delivery, ferry_tensor* out_tensor) {
  return guard(__func__, {FERRY_REQUIRED(delivery), FERRY_REQUIRED(out_tensor)},
               [&] { write_tensor(delivery->delivery.topk_weights(), out_tensor); });
}

ferry_status ferry_delivery_row_source(const ferry_delivery* delivery, ferry_tensor* out_tensor) {
  return guard(__func__, {FERRY_REQUIRED(delivery), FERRY_REQUIRED(out_tensor)},
               [&] { write_tensor(delivery->delivery.row_source(), out_tensor); });
}

ferry_status ferry_delivery_row_expert(const ferry_delivery* delivery, ferry_tensor* out_tensor) {
  return guard(__func__, {FERRY_REQUIRED(delivery), FERRY_REQUIRED(out_tensor)},
               [&] { write_tensor(delivery->delivery.row_expert(), out_tensor); });
}

ferry_status ferry_delivery_num_rows(const ferry_delivery* delivery, ferry_tensor* out_tensor) {
  return guard(__func__, {FERRY_REQUIRED(delivery), FERRY_REQUIRED(out_tensor)},
               [&] { write_tensor(delivery->delivery.num_rows(), out_tensor); });
}

ferry_status ferry_delivery_expert_counts(const ferry_delivery* delivery,
                                          ferry_tensor* out_tensor) {
  return guard(__func__, {FERRY_REQUIRED(delivery), FERRY_REQUIRED(out_tensor)},
               [&] { write_tensor(delivery->delivery.expert_counts(), out_tensor); });
}

ferry_status ferry_delivery_aligned_expert_counts(const ferry_delivery* delivery,
                                                  ferry_tensor* out_tensor) {
  return guard(__func__, {FERRY_REQUIRED(delivery), FERRY_REQUIRED(out_tensor)},
               [&] { write_tensor(delivery->delivery.aligned_expert_counts(), out_tensor); });
}

ferry_status ferry_delivery_expert_offsets(const ferry_delivery* delivery,
                                           ferry_tensor* out_tensor) {
  return guard(__func__, {FERRY_REQUIRED(delivery), FERRY_REQUIRED(out_tensor)},
               [&] { write_tensor(delivery->delivery.expert_offsets(), out_tensor); });
}

ferry_status ferry_delivery_source_offsets(const ferry_delivery* delivery,
                                           ferry_tensor* out_tensor) {
  return guard(__func__, {FERRY_REQUIRED(delivery), FERRY_REQUIRED(out_tensor)},
               [&] { write_tensor(delivery->delivery.source_offsets(), out_tensor); });
}

void ferry_delivery_free(ferry_delivery* delivery) { delete delivery; }
