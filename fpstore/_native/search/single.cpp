#include "search/single.hpp"

#include <algorithm>
#include <utility>

#include "columns/column_header.hpp"
#include "format/idpack.hpp"
#include "search/results.hpp"

namespace fpstore {
namespace {

constexpr uint64_t kMaxKept = 1 << 10, kMaxBytes = 1 << 16;
thread_local std::unique_ptr<SingleMatches> kept;

// There is one query: in the place of its number each match has its own meanwhile.
template <class Row>
void order_few(SingleMatches* out) {
  const uint64_t n = out->sink.count;
  Match<Row>* const found = matches<Row>(out->sink);
  for (uint64_t i = 0; i < n; ++i) found[i].query = static_cast<uint32_t>(i);
  std::sort(found, found + n, [](const Match<Row>& a, const Match<Row>& b) {
    return a.distance != b.distance ? a.distance < b.distance : a.fingerprint < b.fingerprint;
  });
  for (uint64_t i = 0; i < n; ++i) {
    rows<Row>(out->fingerprints.data())[i] = found[i].fingerprint;
    out->distances[i] = static_cast<uint16_t>(found[i].distance);
    if (found[i].query < out->found_at.count) out->places[i] = out->found_at.of[found[i].query];
  }
}

}  // namespace

ThreadMatches::ThreadMatches() : matches_(std::move(kept)) {
  if (!matches_) matches_ = std::make_unique<SingleMatches>();
}

ThreadMatches::~ThreadMatches() {
  const uint64_t bytes = matches_->record.capacity() + matches_->ids.capacity() * sizeof(uint64_t);
  if (matches_->sink.capacity <= kMaxKept && bytes <= kMaxBytes) kept = std::move(matches_);
}

SingleProber::SingleProber(const AnyProber* prober, const AnyTable* identity, const SealedFile* ids,
                           unsigned radius)
    : prober_(prober),
      identity_(identity),
      blocks_(dynamic_cast<const Table*>(identity)),
      ids_(ids),
      radius_(radius) {
  need(words_of(prober->width()) == words(), "tables of several widths");
  need(ids->key_words() == words(), "ids of tables of another width");
}

bool SingleProber::probe(const uint64_t* row, Stopper* stop, SingleMatches* out) const {
  search(row, stop, out);
  try {
    return find_ids(out);
  } catch (const SealedError&) {
    return false;
  }
}

// Finds the matches and their places in the identity table.
void SingleProber::search(const uint64_t* row, Stopper* stop, SingleMatches* out) const {
  // Matches of another width have another size.
  if (out->words != found_words()) release(&out->sink);
  out->words = found_words();
  out->sink.count = 0;
  ProbeOptions options{radius_};
  options.stop = stop;
  out->found_at.table = blocks_ ? &blocks_->view : nullptr;
  out->found_at.on_block = [](const void* ids, uint64_t block) {
    static_cast<const SealedFile*>(ids)->fetch(block);
  };
  out->found_at.context = ids_;
  out->found_at.count = 0;
  options.places = &out->found_at;
  ProbeCounters counters;
  Fault fault;
  const Status found = prober_->search_few({row, 1}, options, &out->sink, &counters, &fault);
  if (found != Status::ok) throw FileFault{fault, prober_->file_of(fault)};
  const uint64_t n = out->sink.count;
  if (!n) return;
  out->fingerprints.resize(n * found_words());
  out->distances.resize(n);
  out->places.assign(n, EntryPlace{UINT64_MAX, 0});
  Status status = fault.status = order(out, stop);
  if (status == Status::ok)
    status = prober_->finds_rows() ? read_rows(out, &fault) : locate(out, stop, &fault);
  check(status, fault, identity_->file);
}

// Reads the rows of the identity table whose numbers were found.
Status SingleProber::read_rows(SingleMatches* out, Fault* fault) const {
  const uint64_t n = out->sink.count;
  out->blocks.resize(n);
  out->ranks.resize(n);
  for (uint64_t i = 0; i < n; ++i) {
    out->blocks[i] = out->fingerprints[i] / kRowsInBlock;
    out->ranks[i] = static_cast<uint32_t>(out->fingerprints[i] % kRowsInBlock);
    out->places[i] = {out->blocks[i], out->ranks[i]};
  }
  out->fingerprints.resize(n * words());
  return identity_->read(out->blocks.data(), out->ranks.data(), n, out->fingerprints.data(), fault);
}

// Finds the places of the matches that were found in other tables than the identity table.
Status SingleProber::locate(SingleMatches* out, Stopper* stop, Fault* fault) const {
  out->rows.clear();
  for (uint64_t i = 0; i < out->sink.count; ++i) {
    const uint64_t* const found = out->fingerprints.data() + i * words();
    if (out->places[i].block != UINT64_MAX) continue;
    out->rows.insert(out->rows.end(), found, found + words());
    if (i < FoundPlaces::kMost) fetch(*found);
  }
  if (out->rows.empty()) return Status::ok;
  const uint64_t n = out->rows.size() / words();
  out->blocks.resize(n);
  out->ranks.resize(n);
  FPSTORE_TRY(
      identity_->find({out->rows.data(), n}, out->blocks.data(), out->ranks.data(), stop, fault));
  uint64_t next = 0;
  for (EntryPlace& place : out->places) {
    if (place.block != UINT64_MAX) continue;
    place = {out->blocks[next], out->ranks[next]};
    if (place.block == UINT64_MAX)
      return (*fault = Fault{Status::bad_digest, UINT64_MAX, out->rows[next * words()], 0}).status;
    ++next;
  }
  return Status::ok;
}

// Fetches ahead, all at once, what it takes to locate a fingerprint, by its leading word, and to
// find its ids. What is wrong with it is reported when it is read.
void SingleProber::fetch(uint64_t leading) const {
  if (!blocks_) return;
  const TableView& t = blocks_->view;
  const uint64_t slot = leading_bits(leading, t.directory_bits);
  uint64_t low = std::min(read_once(t.directory[slot]), t.block_count),
           high = std::min(read_once(t.directory[slot + 1]), t.block_count);
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    if (t.keys[middle] < leading)
      low = middle + 1;
    else
      high = middle;
  }
  if (low >= t.block_count) return;
  for (uint32_t at = 0; at < t.block_bytes; at += 64)
    fetch_line(t.blocks + low * t.block_bytes + at);
  ids_->fetch(low);
}

Status SingleProber::order(SingleMatches* out, Stopper* stop) const {
  if (out->sink.count > FoundPlaces::kMost) {
    int64_t lims[2];
    return order_matches(out->sink, found_words(), sizeof(uint16_t), 1, lims,
                         out->fingerprints.data(), out->distances.data(), 1, stop);
  }
  with_row(found_words(), [&](auto row) { order_few<decltype(row)>(out); });
  return Status::ok;
}

bool SingleProber::find_ids(SingleMatches* out) const {
  out->ids.clear();
  out->id_ends.clear();
  for (uint64_t i = 0; i < out->sink.count; ++i) {
    uint64_t key[kMaxWords], seed = identity_->set_digest;
    Fault fault;
    if (identity_->read_key(out->places[i].block, key, &fault) != Status::ok) return false;
    for (unsigned j = 0; j < words(); ++j) seed += key[j];
    const SealedFile::Value value = ids_->find(key, out->places[i].block);
    if (!value.data) return false;
    out->record.assign(value.data,
                       value.data + value.size);  // what is checked of it is what is read of it
    IdRecord record;
    const uint32_t rank = out->places[i].rank;
    if (open_record(out->record.data(), out->record.size(), seed, &record, &fault) != Status::ok ||
        rank >= record.count)
      return false;
    uint64_t first;
    const uint64_t count = ids_of_rank(record, rank, &first);
    for (uint64_t j = 0; j < count; ++j) out->ids.push_back(id_at(record, first + j));
    out->id_ends.push_back(out->ids.size());
  }
  return true;
}

}  // namespace fpstore
