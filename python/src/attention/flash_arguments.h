// Arguments of a call of flash_attn_interface.
#pragma once

#include "tensors/tensor_argument.h"

namespace attend::python {

// Python objects with the names of flash_attn_with_kvcache's arguments, None if not given. They are valid
// during the call.
struct FlashArguments {
  nb::handle q, qv, k_cache, v_cache;
  nb::handle k, v;  // to append
  nb::handle rotary_cos, rotary_sin, rotary_seqlens, rotary_interleaved;
  nb::handle cu_seqlens_q, cu_seqlens_k, cu_seqlens_k_new, cache_seqlens, max_seqlen_q;
  nb::handle page_table, cache_batch_idx, cache_leftpad, seqused_q;
  nb::handle softmax_scale, causal, window_size, attention_chunk, softcap;
  nb::handle sinks, learnable_sink;
  nb::handle q_descale, k_descale, v_descale;
  nb::handle num_splits, scheduler_metadata;
  nb::handle out, return_softmax_lse;
  // False if the caller's names of k_cache, v_cache and cache_seqlens are k, v and seqused_k, for messages.
  nb::handle keys_are_cache;
};

// Arguments in the order in which flash_attn_with_kvcache passes them. Python packs keywords into a
// dictionary for calls with more than 15, which costs microseconds. Arguments that it does not pass are last.
struct FlashField {
  const char* name;
  nb::handle FlashArguments::*object;
};

inline constexpr FlashField kFlashFields[] = {{"q", &FlashArguments::q},
                                              {"qv", &FlashArguments::qv},
                                              {"k_cache", &FlashArguments::k_cache},
                                              {"v_cache", &FlashArguments::v_cache},
                                              {"k", &FlashArguments::k},
                                              {"v", &FlashArguments::v},
                                              {"rotary_cos", &FlashArguments::rotary_cos},
                                              {"rotary_sin", &FlashArguments::rotary_sin},
                                              {"rotary_seqlens", &FlashArguments::rotary_seqlens},
                                              {"rotary_interleaved", &FlashArguments::rotary_interleaved},
                                              {"cu_seqlens_q", &FlashArguments::cu_seqlens_q},
                                              {"cu_seqlens_k_new", &FlashArguments::cu_seqlens_k_new},
                                              {"cache_seqlens", &FlashArguments::cache_seqlens},
                                              {"max_seqlen_q", &FlashArguments::max_seqlen_q},
                                              {"page_table", &FlashArguments::page_table},
                                              {"cache_batch_idx", &FlashArguments::cache_batch_idx},
                                              {"cache_leftpad", &FlashArguments::cache_leftpad},
                                              {"softmax_scale", &FlashArguments::softmax_scale},
                                              {"causal", &FlashArguments::causal},
                                              {"window_size", &FlashArguments::window_size},
                                              {"attention_chunk", &FlashArguments::attention_chunk},
                                              {"softcap", &FlashArguments::softcap},
                                              {"sinks", &FlashArguments::sinks},
                                              {"q_descale", &FlashArguments::q_descale},
                                              {"k_descale", &FlashArguments::k_descale},
                                              {"v_descale", &FlashArguments::v_descale},
                                              {"num_splits", &FlashArguments::num_splits},
                                              {"scheduler_metadata", &FlashArguments::scheduler_metadata},
                                              {"out", &FlashArguments::out},
                                              {"return_softmax_lse", &FlashArguments::return_softmax_lse},
                                              {"learnable_sink", &FlashArguments::learnable_sink},
                                              {"cu_seqlens_k", &FlashArguments::cu_seqlens_k},
                                              {"seqused_q", &FlashArguments::seqused_q},
                                              {"keys_are_cache", &FlashArguments::keys_are_cache}};

}  // namespace attend::python
