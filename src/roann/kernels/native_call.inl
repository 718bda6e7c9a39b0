// The way from Python to one step: tensors are handed over as the objects they are and looked at
// here, through the C interface that torch offers for it (DLPack's exchange API, major version 1).
// To read and check them in Python would take as long as the step. The caller holds the GIL.

// Of Python's stable ABI, without its headers.
extern "C" void* PyTuple_GetItem(void* tuple, std::ptrdiff_t i);  // a borrowed reference
extern "C" void* PyCFunction_NewEx(void* method, void* self, void* module);
extern "C" void* PyBool_FromLong(long value);
extern "C" long long PyLong_AsLongLong(void* number);
extern "C" double PyFloat_AsDouble(void* number);
extern "C" void* PyErr_Occurred();
extern "C" void PyErr_Clear();

namespace {

struct DLTensor {
    void* data;
    int32_t device, device_id, rank;
    uint8_t code, bits;
    uint16_t lanes;
    const int64_t *shape, *strides;
    uint64_t byte_offset;
};
struct Exchange {
    uint32_t major, minor;
    const void *older, *allocate, *own, *wrap;
    int (*borrow)(void* object, DLTensor* to);  // not 0: it cannot, and a Python error is set
};
enum { ON_CPU = 1, INTEGER = 0, FLOATING = 2 };  // DLPack's codes

int (*borrow)(void*, DLTensor*) = nullptr;
const void* none = nullptr;  // Python's None

// Looks at tensors that must all be fit for the kernel: on the CPU, contiguous, and as expected.
struct Reader {
    bool fit = true;
    int bits = 0;  // of every float

    DLTensor look(void* object) {
        DLTensor t = {};
        if (fit && borrow(object, &t)) {
            PyErr_Clear();
            fit = false;
        }
        fit = fit && t.device == ON_CPU && t.lanes == 1;
        return fit ? t : DLTensor{};
    }

    void* at(const DLTensor& t, const int64_t* shape, int rank, int code = FLOATING) {
        fit = fit && t.data && t.rank == rank && t.code == code &&
              t.bits == (code == FLOATING ? bits : 64);
        int64_t stride = 1;
        for (int i = rank - 1; i >= 0 && fit; i--) {
            fit = t.shape[i] == shape[i] && (t.strides[i] == stride || shape[i] == 1);
            stride *= shape[i];
        }
        return fit ? (char*)t.data + t.byte_offset : nullptr;
    }

    // The memory of item i; null for None.
    void* item(void* tuple, int i, const int64_t* shape, int rank, int code = FLOATING) {
        void* object = PyTuple_GetItem(tuple, i);
        return !fit || object == none ? nullptr : at(look(object), shape, rank, code);
    }
};

// Fills in what is no tensor, from (isa, phi, filter, alpha). Returns the ISA, or −1 if one of them
// is no number: then a Python error is set.
int64_t read_told(void* told, Step& p) {
    p.phi = PyLong_AsLongLong(PyTuple_GetItem(told, 1));
    p.filter = PyLong_AsLongLong(PyTuple_GetItem(told, 2));
    p.alpha_value = PyFloat_AsDouble(PyTuple_GetItem(told, 3));
    return PyErr_Occurred() ? -1 : PyLong_AsLongLong(PyTuple_GetItem(told, 0));
}

// The shapes of a step. A batch of states has one dimension more than a state alone.
struct Shapes {
    int64_t states[2] = {}, inputs[2] = {}, square[2] = {}, W_i[2] = {};
    int rank = 0;
    const int64_t* state() const { return states + 2 - rank; }
    const int64_t* input() const { return inputs + 2 - rank; }
    const int64_t* neurons() const { return square; }
};

// Fills in p from (x, u, W, W_i, b, alpha, and the tensors of O in the order of linear.py).
Shapes read_step(Reader& read, void* tuple, Step& p) {
    Shapes s;
    const DLTensor x = read.look(PyTuple_GetItem(tuple, 0));
    read.bits = x.bits;
    read.fit = read.fit && (x.bits == 32 || x.bits == 64) && (x.rank == 1 || x.rank == 2);
    if (!read.fit) return s;
    s.rank = x.rank;
    p.dtype = x.bits == 64;
    p.B = s.states[0] = s.inputs[0] = x.rank == 2 ? x.shape[0] : 1;
    p.N = s.states[1] = s.square[0] = s.square[1] = s.W_i[0] = x.shape[x.rank - 1];
    p.x = read.at(x, s.state(), s.rank);
    void* W_i = PyTuple_GetItem(tuple, 3);
    if (W_i != none) {
        const DLTensor t = read.look(W_i);
        p.I = s.inputs[1] = s.W_i[1] = t.rank == 2 ? t.shape[1] : 0;
        p.W_i = read.at(t, s.W_i, 2);
        p.u = read.item(tuple, 1, s.input(), s.rank);
        read.fit = read.fit && p.u && p.I > 0;
    }
    p.W = read.item(tuple, 2, s.square, 2);
    p.b = read.item(tuple, 4, s.neurons(), 1);
    void* alpha = PyTuple_GetItem(tuple, 5);
    if (alpha != none) {
        const DLTensor t = read.look(alpha);
        p.alpha_unit = t.rank != 0;
        p.alpha = read.at(t, s.neurons(), t.rank != 0);
    }
    if (p.filter == DENSE) {
        p.O0 = read.item(tuple, 6, s.square, 2);
    } else if (p.filter == GATHER) {
        p.index = (const int64_t*)read.item(tuple, 6, s.neurons(), 1, INTEGER);
        p.inverse = (const int64_t*)read.item(tuple, 7, s.neurons(), 1, INTEGER);
    } else {
        p.O0 = read.item(tuple, 6, s.neurons(), 1);
        p.O1 = read.item(tuple, 7, s.neurons(), 1);
        if (p.filter == ROTATION)
            p.index = p.inverse = (const int64_t*)read.item(tuple, 8, s.neurons(), 1, INTEGER);
    }
    if (p.filter == GATHER || p.filter == ROTATION)
        read.fit = read.fit && within(p.index, p.N, p.N) && within(p.inverse, p.N, p.N);
    return s;
}

// One step, from (told, tensors, x_next). Returns whether it was done: not if a tensor is not fit.
void* step(void*, void* const* args, std::ptrdiff_t) {
    Step p = {};
    const int64_t isa = read_told(args[0], p);
    if (isa < 0) return nullptr;
    Reader read;
    const Shapes s = read_step(read, args[1], p);
    p.x_next = read.at(read.look(args[2]), s.state(), s.rank);
    if (read.fit) build(isa, p.dtype).step(p);
    return PyBool_FromLong(read.fit);
}

// Its adjoint, from (told, tensors, g, gradients): those of x, u, W, W_i and b that are not None.
void* step_adjoint(void*, void* const* args, std::ptrdiff_t) {
    StepAdjoint q = {};
    Step& p = q.step;
    const int64_t isa = read_told(args[0], p);
    if (isa < 0) return nullptr;
    Reader read;
    const Shapes s = read_step(read, args[1], p);
    q.g = read.at(read.look(args[2]), s.state(), s.rank);
    q.g_x = read.item(args[3], 0, s.state(), s.rank);
    q.g_u = read.item(args[3], 1, s.input(), s.rank);
    q.g_W = read.item(args[3], 2, s.square, 2);
    q.g_W_i = read.item(args[3], 3, s.W_i, 2);
    q.g_b = read.item(args[3], 4, s.neurons(), 1);
    if (read.fit) build(isa, p.dtype).step_adjoint(q);
    return PyBool_FromLong(read.fit);
}

// Python's PyMethodDef, with METH_FASTCALL: ctypes takes a microsecond to convert the arguments.
enum { FASTCALL = 0x80 };
struct Method {
    const char* name;
    void* (*call)(void*, void* const*, std::ptrdiff_t);
    int flags;
    const char* doc;
};
Method methods[] = {{"step", step, FASTCALL, nullptr},
                    {"step_adjoint", step_adjoint, FASTCALL, nullptr}};

}  // namespace

// Takes torch's exchange API and Python's None. Returns whether steps can be done with them.
EXPORT int64_t roann_exchange(const Exchange* api, const void* python_none) {
    if (!api || api->major != 1 || !api->borrow) return 0;
    borrow = api->borrow;
    none = python_none;
    return 1;
}

// A step (0) or its adjoint (1) as a function of Python.
EXPORT void* roann_method(int64_t which) {
    return PyCFunction_NewEx(&methods[which], nullptr, nullptr);
}
