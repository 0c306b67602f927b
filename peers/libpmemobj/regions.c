/* The benchmarks `hash` and `queue` of atomic regions (crates/workloads/src/regions) over
 * libpmemobj: the same structures in the same arena, with the same changes, in its transactions.
 *
 *   regions hash|queue small|large OPERATIONS FILE
 *
 * Prints what `cargo run --release -p duramen-workloads --example regions` prints first: name,
 * size, operations per second. */

#include <inttypes.h>
#include <libpmemobj.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ENTRIES = 256, CHAINS = 64, KEYS = 2 * ENTRIES };

struct arena {
    uint64_t free; /* offset of the first free node in the arena, or 0 */
    uint64_t line[7];
    uint64_t words[CHAINS]; /* queue: first and next */
};

static PMEMobjpool *pool;
static struct arena *arena;
static uint64_t entry_bytes;
static char *buffer;

static uint64_t random_state = 42;

static uint64_t draw(uint64_t below) {
    random_state += 0x9e3779b97f4a7c15u;
    uint64_t mixed = (random_state ^ (random_state >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    return (mixed ^ (mixed >> 31)) % below;
}

static uint64_t *at(uint64_t offset) {
    return (uint64_t *)((char *)arena + offset);
}

static uint64_t node(uint64_t index) {
    return sizeof(struct arena) + index * entry_bytes;
}

static void set(uint64_t *word, uint64_t value) {
    pmemobj_tx_add_range_direct(word, sizeof *word);
    *word = value;
}

static void fill(uint64_t *words, uint64_t first, uint64_t key) {
    for (uint64_t word = first; word < entry_bytes / 8; word++) words[word] = key << 16 | (word - first);
}

static uint64_t chain_of(uint64_t key) {
    return key * 0x9e3779b97f4a7c15u >> 58;
}

static void give_back(uint64_t offset) {
    set(at(offset), arena->free);
    set(&arena->free, offset);
}

static void toggle(uint64_t key) {
    uint64_t *chain = &arena->words[chain_of(key)], *link = chain;
    for (; *link != 0; link = at(*link)) {
        uint64_t found = *link;
        if (at(found)[1] == key) {
            set(link, at(found)[0]);
            give_back(found);
            return;
        }
    }
    uint64_t new = arena->free;
    if (new == 0) return;
    set(&arena->free, at(new)[0]);
    pmemobj_tx_add_range_direct(at(new), entry_bytes);
    at(new)[0] = *chain;
    at(new)[1] = key;
    fill(at(new), 2, key);
    set(chain, new);
}

static void enqueue(uint64_t key) {
    uint64_t first = arena->words[0], next = arena->words[1];
    if (next - first == ENTRIES) return;
    uint64_t *to = at(node(next % ENTRIES));
    pmemobj_tx_add_range_direct(to, entry_bytes);
    to[0] = key;
    fill(to, 1, key);
    set(&arena->words[1], next + 1);
}

static void dequeue(void) {
    uint64_t first = arena->words[0];
    if (first == arena->words[1]) return;
    memcpy(buffer, at(node(first % ENTRIES)), entry_bytes);
    set(&arena->words[0], first + 1);
}

static void operate(int is_hash, uint64_t number) {
    uint64_t key = draw(KEYS);
    TX_BEGIN(pool) {
        if (is_hash) toggle(key);
        else if (number % 2 == 0) enqueue(key);
        else dequeue();
    }
    TX_ONABORT {
        fprintf(stderr, "a transaction failed: %s\n", pmemobj_errormsg());
        exit(1);
    }
    TX_END
}

/* Counts the entries, and checks that each has its own bytes. */
static uint64_t audit(int is_hash) {
    uint64_t entries = 0;
    for (uint64_t chain = 0; is_hash && chain < CHAINS; chain++)
        for (uint64_t found = arena->words[chain]; found != 0; found = at(found)[0], entries++)
            for (uint64_t word = 2; word < entry_bytes / 8; word++)
                if (at(found)[word] != (at(found)[1] << 16 | (word - 2))) exit(3);
    return is_hash ? entries : arena->words[1] - arena->words[0];
}

int main(int count, char **arguments) {
    if (count != 5) {
        fprintf(stderr, "usage: regions hash|queue small|large OPERATIONS FILE\n");
        return 2;
    }
    int is_hash = strcmp(arguments[1], "hash") == 0;
    entry_bytes = strcmp(arguments[2], "large") == 0 ? 4096 : 512;
    uint64_t operations = strtoull(arguments[3], NULL, 10);
    size_t bytes = sizeof(struct arena) + ENTRIES * entry_bytes;
    buffer = malloc(entry_bytes);
    pool = pmemobj_create(arguments[4], "regions", 64 << 20, 0600);
    if (pool == NULL) {
        fprintf(stderr, "%s: %s\n", arguments[4], pmemobj_errormsg());
        return 1;
    }
    arena = pmemobj_direct(pmemobj_root(pool, bytes));
    for (uint64_t index = ENTRIES; is_hash && index-- > 0;) {
        TX_BEGIN(pool) { give_back(node(index)); }
        TX_END
    }
    for (uint64_t number = 0; number < 2 * ENTRIES; number++) operate(is_hash, number);
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (uint64_t number = 0; number < operations; number++) operate(is_hash, number);
    clock_gettime(CLOCK_MONOTONIC, &end);
    double seconds = (end.tv_sec - start.tv_sec) + (end.tv_nsec - start.tv_nsec) / 1e9;
    printf("%-7s %-6s %10.0f (%" PRIu64 " entries)\n", arguments[1], arguments[2], operations / seconds, audit(is_hash));
    pmemobj_close(pool);
    return 0;
}
