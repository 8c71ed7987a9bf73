#include "build/id_packer.hpp"

namespace fpstore {

const uint64_t* IdPacker::feed(const Groups& rows, const uint32_t* entry_counts, size_t blocks) {
  const unsigned words = file_->key_words();
  size_t row = 0, id = 0;
  for (size_t b = 0; b < blocks; ++b) {
    const size_t n = entry_counts[b];
    const bool is_buffered = buffered_rows() != 0;
    if (n > buffered_rows() && is_buffered) buffer_rows(rows, &row, &id, n - buffered_rows());
    const uint64_t* const keys = is_buffered ? keys_.data() : rows.set.keys + row * words;
    const uint64_t* const counts = is_buffered ? counts_.data() : rows.counts + row;
    const uint64_t* const ids = is_buffered ? ids_.data() : rows.ids + id;
    const uint64_t* const last_key = keys + (n - 1) * words;
    uint64_t seed = seed_;
    for (unsigned i = 0; i < words; ++i) seed += last_key[i];
    const uint64_t id_count = pack_record(ids, counts, n, seed, &record_);
    if (!file_->append(last_key, record_.data(), record_.size())) return last_key;
    if (is_buffered) {
      const auto erase = [](std::vector<uint64_t>* column, size_t count) {
        column->erase(column->begin(), column->begin() + static_cast<ptrdiff_t>(count));
      };
      erase(&keys_, n * words);
      erase(&counts_, n);
      erase(&ids_, id_count);
    } else {
      row += n;
      id += id_count;
    }
  }
  buffer_rows(rows, &row, &id, rows.set.n - row);
  return nullptr;
}

// Copies the next n rows to the open block; moves the row and its first id on.
void IdPacker::buffer_rows(const Groups& rows, size_t* row, size_t* id, size_t n) {
  const auto append = [](std::vector<uint64_t>* column, const uint64_t* values, size_t count) {
    column->insert(column->end(), values, values + count);
  };
  const unsigned words = file_->key_words();
  size_t ids = 0;
  for (size_t i = 0; i < n; ++i) ids += rows.counts[*row + i];
  append(&keys_, rows.set.keys + *row * words, n * words);
  append(&counts_, rows.counts + *row, n);
  append(&ids_, rows.ids + *id, ids);
  *row += n;
  *id += ids;
}

}  // namespace fpstore
