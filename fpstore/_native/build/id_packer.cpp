#include "build/id_packer.hpp"

namespace fpstore {

bool IdPacker::feed(const Groups& rows, const uint32_t* entry_counts, size_t blocks,
                    SealedEncoder* out) {
  size_t row = 0, id = 0;
  for (size_t b = 0; b < blocks; ++b) {
    const size_t n = entry_counts[b];
    if (buffered_rows()) {
      if (n > buffered_rows()) buffer_rows(rows, &row, &id, n - buffered_rows());
      if (!pack(keys_.data() + (n - 1) * words_, counts_.data(), ids_.data(), n, out)) return false;
      const auto erase = [](std::vector<uint64_t>* column, size_t count) {
        column->erase(column->begin(), column->begin() + static_cast<ptrdiff_t>(count));
      };
      erase(&keys_, n * words_);
      erase(&counts_, n);
      erase(&ids_, lims_[n]);
    } else {
      const uint64_t* const last = rows.set.keys + (row + n - 1) * words_;
      if (!pack(last, rows.counts + row, rows.ids + id, n, out)) return false;
      row += n;
      id += lims_[n];
    }
  }
  buffer_rows(rows, &row, &id, rows.set.n - row);
  return true;
}

// Copies the next n rows to the open block; moves the row and its first id on.
void IdPacker::buffer_rows(const Groups& rows, size_t* row, size_t* id, size_t n) {
  const auto append = [](std::vector<uint64_t>* column, const uint64_t* values, size_t count) {
    column->insert(column->end(), values, values + count);
  };
  size_t ids = 0;
  for (size_t i = 0; i < n; ++i) ids += rows.counts[*row + i];
  append(&keys_, rows.set.keys + *row * words_, n * words_);
  append(&counts_, rows.counts + *row, n);
  append(&ids_, rows.ids + *id, ids);
  *row += n;
  *id += ids;
}

bool IdPacker::pack(const uint64_t* last_key, const uint64_t* counts, const uint64_t* ids, size_t n,
                    SealedEncoder* out) {
  lims_.resize(n + 1);
  lims_[0] = 0;
  for (size_t i = 0; i < n; ++i) lims_[i + 1] = lims_[i] + counts[i];
  uint64_t seed = seed_;
  for (unsigned i = 0; i < words_; ++i) seed += last_key[i];
  record_.resize(record_bytes(ids, lims_.data(), n));
  pack_record(ids, lims_.data(), n, seed, record_.data());
  return out->append(last_key, record_.data(), record_.size());
}

}  // namespace fpstore
